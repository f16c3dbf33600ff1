//go:build unix

package sqlite

import (
	"context"
	"fmt"
	"os"
)

// Command is the campaign as a command line; a kong command that is given a
// context.
type Command struct {
	Histories int    `default:"100" help:"Histories in all, those already done included."`
	First     uint64 `default:"1" help:"Seed of the first."`
	Planted   int    `default:"0" help:"Instead: so many runs of each gateway that is known to be wrong."`
	Dir       string `default:"torture-out" help:"Where the state is kept, and what failed histories leave."`
}

// Run runs the campaign and prints what came of it. Its error says that something
// was wrong, or that a known-bad gateway was not found out.
func (c *Command) Run(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	cfg := config{Dir: c.Dir, Log: os.Stdout}
	if c.Planted > 0 {
		return c.planted(ctx, cfg)
	}
	seeds := make([]uint64, c.Histories)
	for i := range seeds {
		seeds[i] = c.First + uint64(i)
	}
	report, err := runAll(ctx, cfg, seeds...)
	fmt.Println(report)
	if err == nil && len(report.Failed) > 0 {
		err = fmt.Errorf("%d histories failed", len(report.Failed))
	}
	return err
}

func (c *Command) planted(ctx context.Context, cfg config) error {
	table, err := tryPlanted(ctx, cfg, c.Planted)
	for _, row := range table {
		fmt.Println(row)
		if row.times == 0 && err == nil {
			err = fmt.Errorf("nothing was found wrong with: %s", row.what)
		}
	}
	return err
}
