// Package dashboards holds what Grafana and Prometheus need to watch gateways:
// overview.json, connections.json, store.json, chain.json and engine.json, made from the Go
// values of internal/boards, and rules.yml with rules_test.yml.
//
// There is nothing to import. Its tests show that the files are current and that
// each of their questions has an answer of a real gateway, by a real Prometheus.
package dashboards

//go:generate go run ./internal/generate
