// Package dashboards holds what an operator sees weir by: Grafana dashboards, and the
// recording and alert rules of Prometheus. The dashboards are described in Go, one file
// each, so that every query has the same variables and every panel says how to read it;
// the JSON files beside it are written from that by
//
//	go test ./dashboards -run TestFiles -update
//
// and are what Grafana loads. A change made in Grafana is carried over by hand.
package dashboards
