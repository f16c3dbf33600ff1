// Package dashboards holds what Grafana and Prometheus need to watch gateways: overview.json, connections.json, store.json, chain.json and
// engine.json, which are edited as they are, and rules.yml with rules_test.yml.
//
// There is nothing to import. Its tests hold these files against the metrics of a real gateway, against promtool, and against the pages of
// docs/ that explain them.
package dashboards
