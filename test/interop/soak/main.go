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
	code, err := command(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	stop()
	os.Exit(code)
}

// command runs for each of --who. The exit code is 1 when a run with the gateway left anything to
// be desired, 2 when there was no run.
func command(ctx context.Context) (code int, err error) {
	cfg := defaultConfig()
	who := flag.String("who", "gateway",
		"where nonces come from, with commas between: gateway, sdk-viem, sdk-ethers (our package for TypeScript), viem, ethers, redis")
	file := flag.String("report", "", "write the reports to this file as JSON")
	runs := flag.Int("runs", 1, "runs with seeds that follow one another")
	flag.StringVar(&cfg.Chain, "chain", cfg.Chain, "the chain: geth or anvil")
	flag.BoolVar(&cfg.Liar, "liar", false, "the gateway has a third node, which lies at times")
	flag.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long payments come")
	flag.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "decides what goes wrong")
	flag.IntVar(&cfg.Accounts, "accounts", cfg.Accounts, "accounts that pay")
	flag.StringVar(&cfg.Gateway, "gateway", "", "program of the gateway; built when empty")
	flag.DurationVar(&cfg.KillEvery, "kill-every", cfg.KillEvery, "how long a gateway lives, about")
	flag.DurationVar(&cfg.BlockTime, "block-time", cfg.BlockTime, "time between blocks")
	flag.StringVar(&cfg.Logs, "logs", "", "folder for the gateways' logs")
	flag.BoolVar(&cfg.Verbose, "v", false, "say everything that goes wrong")
	flag.Parse()

	var reports []*Report
	first := cfg.Seed
	for cfg.Who = range strings.SplitSeq(*who, ",") {
		for i := range *runs {
			cfg.Seed = first + uint64(i)
			report, err := run(ctx, cfg, os.Stderr)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", cfg.Who, err)
			}
			report.WriteText(os.Stdout)
			reports = append(reports, report)
			if cfg.withGateway() && len(report.Violations) > 0 {
				code = 1
			}
		}
	}
	fmt.Printf("\n%s", Table(reports))
	if *file == "" {
		return code, nil
	}
	text, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return code, err
	}
	return code, os.WriteFile(*file, append(text, '\n'), 0o644)
}
