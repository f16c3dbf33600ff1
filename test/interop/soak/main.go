package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx)
	stop()
	os.Exit(code)
}

// command runs for each of --who. The exit code is 1 when the gateway left anything to
// be desired, 2 when there was no run.
func command(ctx context.Context) int {
	cfg := defaultConfig()
	who := flag.String("who", "gateway", "where nonces come from, with commas between: gateway, viem, ethers, redis; NAME+fresh sends again with a new nonce")
	file := flag.String("report", "", "write the reports to this file as JSON")
	flag.StringVar(&cfg.Chain, "chain", cfg.Chain, "the chain: geth or anvil")
	flag.BoolVar(&cfg.Liar, "liar", false, "the gateway has a third node, which lies at times")
	flag.StringVar(&cfg.Lie, "lie", "", "it tells only lies whose names have this text")
	runs := flag.Int("runs", 1, "runs with seeds that follow one another")
	flag.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long payments come")
	flag.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "decides what goes wrong")
	flag.IntVar(&cfg.Accounts, "accounts", cfg.Accounts, "accounts that pay")
	flag.IntVar(&cfg.Workers, "workers", cfg.Workers, "workers")
	flag.IntVar(&cfg.Rate, "rate", cfg.Rate, "payments in a second")
	flag.StringVar(&cfg.Gateway, "gateway", "", "program of the gateway; built when empty")
	flag.DurationVar(&cfg.UnknownTTL, "unknown-ttl", cfg.UnknownTTL, "the gateway's setting")
	flag.DurationVar(&cfg.HoldTTL, "hold-ttl", cfg.HoldTTL, "the gateway's setting")
	flag.DurationVar(&cfg.GapAfter, "chain-gap-after", cfg.GapAfter, "the gateway's setting")
	flag.DurationVar(&cfg.LeaseTTL, "lease-ttl", cfg.LeaseTTL, "the gateway's setting")
	flag.DurationVar(&cfg.KillEvery, "kill-every", cfg.KillEvery, "how long a gateway lives, about")
	flag.DurationVar(&cfg.BlockTime, "block-time", cfg.BlockTime, "time between blocks")
	flag.DurationVar(&cfg.Sweep, "sweep", cfg.Sweep, "how often the watcher asks for all accounts")
	flag.StringVar(&cfg.Logs, "logs", "", "folder for the gateways' logs")
	flag.BoolVar(&cfg.Verbose, "v", false, "say everything that goes wrong")
	flag.Parse()

	var reports []*Report
	code := 0
	first := cfg.Seed
	for name := range strings.SplitSeq(*who, ",") {
		cfg.Who, cfg.Fresh = strings.CutSuffix(name, "+fresh")
		for i := range *runs {
			cfg.Seed = first + uint64(i)
			report, err := run(ctx, cfg, os.Stderr)
			if err != nil {
				fmt.Fprintln(os.Stderr, name+":", err)
				return 2
			}
			report.WriteText(os.Stdout)
			reports = append(reports, report)
			if cfg.Who == "gateway" && len(report.Violations) > 0 {
				code = 1
			}
		}
	}
	fmt.Printf("\n%s", Table(reports))
	if *file != "" {
		text, err := json.MarshalIndent(reports, "", "  ")
		if err == nil {
			err = os.WriteFile(*file, append(text, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	return code
}
