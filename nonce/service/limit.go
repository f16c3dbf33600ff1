package service

import (
	"context"
	"time"
)

// limit bounds one call after the other, by one context as long as none of them takes too long: a
// context for each commit was a third of what a small one allocated.
type limit struct {
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
}

// begin returns the context of a call, which end ends.
func (l *limit) begin(parent context.Context, d time.Duration) context.Context {
	if l.ctx != nil && l.ctx.Err() == nil {
		l.timer.Reset(d)
		return l.ctx
	}
	l.ctx, l.cancel = context.WithCancel(parent)
	l.timer = time.AfterFunc(d, l.cancel)
	return l.ctx
}

func (l *limit) end() {
	if !l.timer.Stop() { // the context is over, or is about to be
		l.cancel()
	}
}
