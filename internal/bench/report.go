package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/afterwrite/afterwrite/streams"
)

const fileStorage = streams.FileStorage

// report is everything that was measured.
type report struct {
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Runs     int               `json:"runs"`
	// Dispatches of one measurement, of rows that do all of them.
	Dispatches int        `json:"dispatches"`
	Rows       []measured `json:"rows"`
	Latencies  []waited   `json:"latencies,omitempty"`
	Work       []work     `json:"work,omitempty"`
	Targets    []target   `json:"targets,omitempty"`
}

type machine struct {
	At     time.Time `json:"at"`
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	System string    `json:"system"`
	Go     string    `json:"go"`
}

// measured is a row and its samples.
type measured struct {
	row
	Name    string   `json:"name"`
	Samples []sample `json:"samples"`
	// BrokerHeap is bytes of the broker's heap for each journaled dispatch, where the journal was filled.
	BrokerHeap float64 `json:"broker_heap_bytes_per_dispatch,omitempty"`
	// OfFloor and OfLimit are ratios of medians, 0 where there is nothing to compare with.
	OfFloor float64 `json:"of_floor,omitempty"`
	OfLimit float64 `json:"of_limit,omitempty"`
}

// waited is a variant and its latencies.
type waited struct {
	row
	Name   string    `json:"name"`
	Alone  []latency `json:"one_in_flight"`
	Loaded []latency `json:"half_saturated"`
}

// target is what must be reached.
type target struct {
	What string  `json:"what"`
	Want string  `json:"want"`
	Have float64 `json:"have"`
	Met  bool    `json:"met"`
}

func newReport(o options) *report {
	r := &report{
		Machine: machine{
			At: time.Now().UTC(), CPU: processor(), Cores: runtime.NumCPU(),
			System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		},
		Versions:   map[string]string{},
		Runs:       o.Runs,
		Dispatches: o.Dispatches,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if slices.Contains(told, m.Path) {
				r.Versions[m.Path] = m.Version
			}
		}
	}
	return r
}

// told are the modules whose versions say what was measured.
var told = []string{
	"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "github.com/ThreeDotsLabs/watermill",
	"github.com/ThreeDotsLabs/watermill-nats/v2", "github.com/dbos-inc/dbos-transact-golang", "github.com/riverqueue/river",
	"modernc.org/sqlite",
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// waiting is where the latencies of a variant are kept.
func (r *report) waiting(w row) *waited {
	for i := range r.Latencies {
		if r.Latencies[i].Role == w.Role {
			return &r.Latencies[i]
		}
	}
	r.Latencies = append(r.Latencies, waited{row: w, Name: w.String()})
	return &r.Latencies[len(r.Latencies)-1]
}

// unmeasuredRate is the load of latencies where the throughput was not measured.
const unmeasuredRate = 5000

// rate is half of what ours did at saturation in this run, rounded down so that a table can be read.
func (r *report) rate(run int) float64 {
	for _, m := range r.Rows {
		if m.Group == groupThroughput && m.Role == roleOurs && m.Hooks == 1 && m.Replicas == 1 && len(m.Samples) >= run {
			return max(math.Floor(m.Samples[run-1].PerSecond/200)*100, 100)
		}
	}
	return unmeasuredRate
}

// median of the samples, by what of gives of each.
func (m *measured) median(of func(sample) float64) float64 { return median(m.Samples, of) }

// median is the middle one, or the mean of the two in the middle.
func median[S any](samples []S, of func(S) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	switch n := len(values); {
	case n == 0:
		return 0
	case n%2 == 0:
		return (values[n/2-1] + values[n/2]) / 2
	default:
		return values[n/2]
	}
}

func perSecond(s sample) float64 { return s.PerSecond }

// find is the row of a variant that differs from r in nothing that matters to a comparison.
func (r *report) find(role role, like row) *measured {
	for i := range r.Rows {
		if m := &r.Rows[i]; m.Role == role && m.Replicas == 1 && m.like(like) {
			return m
		}
	}
	return nil
}

// conclude computes ratios and looks at the targets.
func (r *report) conclude() {
	for i := range r.Rows {
		m := &r.Rows[i]
		own := m.median(perSecond)
		if floor := r.find(roleFloor, m.row); floor != nil {
			m.OfFloor = own / floor.median(perSecond)
		}
		if limit := r.find(roleLimit, m.row); limit != nil {
			m.OfLimit = own / limit.median(perSecond)
		}
	}
	r.judge()
}

// judge looks at every target whose rows were measured.
func (r *report) judge() {
	plain := row{Hooks: 1, Storage: fileStorage}
	ours := r.find(roleOurs, plain)
	if ours != nil {
		one := ours.median(perSecond)
		if r.find(roleFloor, plain) != nil {
			r.atLeast("throughput with 1 hook, of floor", 0.90, ours.OfFloor)
			r.atLeast("throughput with 1 hook, of limit", 0.58, ours.OfLimit)
		}
		if many := r.find(roleOurs, row{Hooks: 16, Storage: fileStorage}); many != nil {
			r.atLeast("throughput per dispatch with 16 hooks, of that with 1", 0.9, many.median(perSecond)/one)
		}
		for _, peer := range []struct {
			role  role
			times float64
		}{{roleWatermillTuned, 1.5}, {roleWatermill, 3}, {roleDBOS, 15}, {roleRiver, 15}} {
			if m := r.find(peer.role, plain); m != nil {
				r.atLeast("throughput, of "+m.Name, peer.times, one/m.median(perSecond))
			}
		}
		peak := 0.0
		for _, m := range r.Rows {
			if m.Role == roleOurs {
				peak = max(peak, m.median(func(s sample) float64 { return float64(s.Worker.PeakResident) }))
			}
		}
		r.atMost("dispatcher memory, MB", 100, peak/1e6)
	}
	if len(r.Latencies) == 2 {
		floor, ours := r.Latencies[0].Alone, r.Latencies[1].Alone
		r.atMost("latency with one in flight, p50, of floor", 1.3, median(ours, p50)/median(floor, p50))
		r.atMost("latency with one in flight, p99, of floor", 1.5, median(ours, p99)/median(floor, p99))
	}
	if len(r.Work) > 0 {
		r.atMost("own work per dispatch, µs", 20, median(r.Work, func(w work) float64 { return w.Nanoseconds / 1e3 }))
		r.atMost("own work per dispatch, in strict decodes of 1 kB by the JSON library", designDecodes, median(r.Work, work.decodes))
		r.atMost("own work per dispatch, allocations", 60, median(r.Work, func(w work) float64 { return float64(w.Allocs) }))
	}
	for i := range r.Rows {
		if m := &r.Rows[i]; m.Group == groupSize && m.Role == roleOurs {
			r.atLeast(fmt.Sprintf("throughput with %s journaled, of floor", thousands(m.Journaled)), 0.9, m.OfFloor)
		}
	}
}

func p50(l latency) float64  { return float64(l.P50) }
func p99(l latency) float64  { return float64(l.P99) }
func p999(l latency) float64 { return float64(l.P999) }

func (r *report) atLeast(what string, want, have float64) {
	r.Targets = append(r.Targets, target{what, fmt.Sprintf("≥ %g", want), have, have >= want})
}

func (r *report) atMost(what string, want, have float64) {
	r.Targets = append(r.Targets, target{what, fmt.Sprintf("≤ %g", want), have, have <= want})
}

// write puts the report where the options want it.
func (r *report) write(o options) error {
	if o.JSON != "" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(o.JSON, append(data, '\n'), 0o600)
		}
		if err != nil {
			return fmt.Errorf("write --json: %w", err)
		}
	}
	var text bytes.Buffer
	r.markdown(&text)
	if o.Markdown != "" {
		if err := os.WriteFile(o.Markdown, text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("write --markdown: %w", err)
		}
		return nil
	}
	if _, err := os.Stdout.Write(text.Bytes()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (r *report) markdown(w io.Writer) {
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // a buffer takes everything
	put("%s, %d cores, %s, %s, %s. Medians of %d.\n\n",
		r.Machine.CPU, r.Machine.Cores, r.Machine.System, r.Machine.Go, r.Machine.At.Format(time.DateOnly), r.Runs)
	var versions []string
	for _, path := range told {
		if v := r.Versions[path]; v != "" {
			versions = append(versions, path+" "+v)
		}
	}
	put("%s.\n\n", strings.Join(versions, ", "))
	if len(r.Rows) > 0 {
		put("| variant | dispatches/s | lowest – highest | of floor | of limit | CPU µs: itself | provider | broker | allocations | peak MB | broker B/dispatch |\n")
		put("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	}
	for _, m := range r.Rows {
		low := slices.MinFunc(m.Samples, byRate).PerSecond
		high := slices.MaxFunc(m.Samples, byRate).PerSecond
		put("| %s | %s | %s – %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", m.Name,
			thousands(int(m.median(perSecond))), thousands(int(low)), thousands(int(high)), ratio(m.OfFloor), ratio(m.OfLimit),
			figure(m.median(func(s sample) float64 { return s.Worker.CPU })),
			figure(m.median(func(s sample) float64 { return s.Provider.CPU })),
			figure(m.median(func(s sample) float64 { return s.Broker.CPU })),
			figure(m.median(func(s sample) float64 { return s.Worker.Allocs })),
			figure(m.median(func(s sample) float64 { return float64(s.Worker.PeakResident) / 1e6 })),
			figure(m.BrokerHeap))
	}
	if len(r.Latencies) > 0 {
		put("\n| latency | load | p50 | p99 | p99.9 |\n|---|---|---:|---:|---:|\n")
	}
	for _, l := range r.Latencies {
		for _, at := range []struct {
			load string
			all  []latency
		}{{"one in flight", l.Alone}, {"half saturated", l.Loaded}} {
			load := at.load
			if rate := median(at.all, func(l latency) float64 { return l.Rate }); rate > 0 {
				load += fmt.Sprintf(", %s/s", thousands(int(rate)))
			}
			put("| %s | %s | %s | %s | %s |\n", l.Name, load, micros(median(at.all, p50)), micros(median(at.all, p99)), micros(median(at.all, p999)))
		}
	}
	if len(r.Work) > 0 {
		put("\nThe dispatcher's own work per dispatch: %.1f µs, %.0f allocations, %.0f bytes. The JSON library decodes 1 kB strictly in %.1f µs.\n",
			median(r.Work, func(w work) float64 { return w.Nanoseconds / 1e3 }),
			median(r.Work, func(w work) float64 { return float64(w.Allocs) }),
			median(r.Work, func(w work) float64 { return float64(w.Bytes) }),
			median(r.Work, func(w work) float64 { return w.Decode / 1e3 }))
	}
	if len(r.Targets) > 0 {
		put("\n| target | wanted | measured | met |\n|---|---:|---:|---|\n")
	}
	for _, t := range r.Targets {
		put("| %s | %s | %.2f | %s |\n", t.What, t.Want, t.Have, map[bool]string{true: "yes", false: "**no**"}[t.Met])
	}
}

func byRate(a, b sample) int { return cmp.Compare(a.PerSecond, b.PerSecond) }

// ratio and figure leave out what was not measured.
func ratio(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}

func figure(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", v)
}

func micros(ns float64) string { return fmt.Sprintf("%.0f µs", ns/1e3) }

// thousands writes a number with a thin gap at the thousands, as in 31 400.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + " " + digits[at:]
	}
	return digits
}
