package noncetest

import (
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Unmeasured is a nonce.Figures that keeps nothing.
type Unmeasured struct{}

var _ nonce.Figures = Unmeasured{}

// WorkerQueue and all others implement nonce.Figures.
func (Unmeasured) WorkerQueue(time.Duration)        {}
func (Unmeasured) Commit(time.Duration, int)        {}
func (Unmeasured) LeaseAcquire(lease.AcquireResult) {}
func (Unmeasured) LeaseRenew(nonce.RenewResult)     {}
func (Unmeasured) FenceReject(nonce.Kind)           {}
func (Unmeasured) WentBack()                        {}
func (Unmeasured) Invariant()                       {}
func (Unmeasured) Swept(int)                        {}
func (Unmeasured) SweepsPaused(bool)                {}
