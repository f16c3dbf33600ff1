package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"noncegate/client"
	"noncegate/wire"
)

type callCmd struct {
	Method string `arg:"" help:"A method, such as nonce_allocate."`
	Params string `arg:"" optional:"" help:"Its params, as a JSON object or array."`
	GatewayURL
	Timeout time.Duration `default:"20s" min:"1ms" text:"timeout-of-call"`
}

// Validate reports the first argument that cannot be used.
func (c *callCmd) Validate() error {
	return cmp.Or(c.GatewayURL.Validate(), c.checkParams())
}

func (c *callCmd) checkParams() error {
	if strings.HasSuffix(c.Method, "subscribe") {
		return errors.New("call asks once and leaves; to see events use gateway watch")
	}
	if c.Params == "" {
		return nil
	}
	var params any
	if err := wire.Unmarshal([]byte(c.Params), &params); err != nil {
		return fmt.Errorf("PARAMS is not JSON: %w", err)
	}
	switch params.(type) {
	case map[string]any, []any:
		return nil
	}
	return errors.New("PARAMS must be a JSON object or array")
}

// Run implements the command. A refusal of the gateway is its error.
func (c *callCmd) Run(ctx context.Context, p *program) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	gateway, err := c.dial(ctx, client.Config{MaxElapsed: c.Timeout})
	if err != nil {
		return err
	}
	defer gateway.Close()
	var params any
	if c.Params != "" {
		params = wire.Raw(c.Params)
	}
	var result wire.Raw
	if err := gateway.Call(ctx, c.Method, params, &result); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s\n", result)
	return err
}
