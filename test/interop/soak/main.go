package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// main runs for each of --who. The exit code is 1 when the gateway left anything to be desired, 2 when there was no run.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	cfg := defaultConfig()
	who := flag.String("who", "gateway",
		"where nonces come from, with commas between: gateway, sdk-viem, sdk-ethers (our package for TypeScript), viem, ethers, redis")
	flag.BoolVar(&cfg.Liar, "liar", false, "the gateway has a third node, which lies at times")
	flag.BoolVar(&cfg.Failover, "patroni", false, "the gateways' PostgreSQL is one that fails over, and its leader dies halfway")
	flag.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long payments come")
	flag.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "decides what goes wrong")
	flag.IntVar(&cfg.Accounts, "accounts", cfg.Accounts, "accounts that pay")
	flag.StringVar(&cfg.Logs, "logs", "", "folder for the gateways' logs; then everything that goes wrong is said, too")
	flag.Parse()
	code, table := 0, tableHead
	for cfg.Who = range strings.SplitSeq(*who, ",") {
		report, err := run(ctx, cfg, os.Stderr)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", cfg.Who, err)
			os.Exit(2)
		}
		report.WriteText(os.Stdout)
		table += report.row()
		if cfg.withGateway() && len(report.Violations) > 0 {
			code = 1
		}
	}
	fmt.Printf("\n%s", table)
	os.Exit(code)
}
