package main

import "time"

// EngineConfig is the settings of the performance engine. They mean nothing without
// --redis. All nodes of a store are to have the same.
type EngineConfig struct {
	ShipSLA         time.Duration `name:"ship-sla" default:"1s" min:"10ms" below:"engine-grant"`
	ShipInterval    time.Duration `default:"100ms" min:"1ms" upto:"ship-sla"`
	EngineGrant     time.Duration `default:"45s" min:"1s" max:"10m"`
	EngineRehearsal time.Duration `default:"10s" min:"0s"`
	EngineTimeout   time.Duration `default:"1s" min:"10ms" below:"engine-grant,redis-lost-after"`
	RedisLostAfter  time.Duration `default:"30s"`
}
