package natsconn

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// connection is a connection's metrics, looked at when they are scraped.
type connection struct {
	nc                    *nats.Conn
	connected, reconnects *prometheus.Desc
}

// observe registers the metrics of nc, in place of those of a connection before it.
func observe(nc *nats.Conn, registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	c := &connection{
		nc: nc,
		connected: prometheus.NewDesc("afterwrite_broker_connected",
			"1 while the connection to the broker is there, else 0.", nil, nil),
		reconnects: prometheus.NewDesc("afterwrite_broker_reconnects_total",
			"How often the connection to the broker was there again.", nil, nil),
	}
	registry.Unregister(c)
	if err := registry.Register(c); err != nil {
		return fmt.Errorf("register the metrics of the connection: %w", err)
	}
	return nil
}

// Disconnected gives a look at the connection: a sentence while it is not there, "" while it is.
func Disconnected(nc *nats.Conn) func() string {
	return func() string {
		if nc.IsConnected() {
			return ""
		}
		return "the connection to the broker is " + strings.ToLower(nc.Status().String())
	}
}

// Describe implements prometheus.Collector.
func (c *connection) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- c.connected
	descriptions <- c.reconnects
}

// Collect implements prometheus.Collector.
func (c *connection) Collect(metrics chan<- prometheus.Metric) {
	connected := 0.0
	if c.nc.IsConnected() {
		connected = 1
	}
	metrics <- prometheus.MustNewConstMetric(c.connected, prometheus.GaugeValue, connected)
	metrics <- prometheus.MustNewConstMetric(c.reconnects, prometheus.CounterValue, float64(c.nc.Stats().Reconnects))
}
