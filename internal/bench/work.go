package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// work is what the dispatcher does itself for one dispatch, from the receipt's message to its acknowledgement,
// without the broker and its client.
type work struct {
	Nanoseconds float64 `json:"ns_per_dispatch"`
	// Decode is what the JSON library takes to decode a document of a kilobyte strictly, in nanoseconds: a yardstick.
	Decode float64 `json:"decode_ns"`
	Bytes  int     `json:"bytes_per_dispatch"`
	Allocs int     `json:"allocs_per_dispatch"`
}

// designDecodes is the own work that the design wants, in yardsticks: 20 µs, on a machine where one is 2.3 µs.
const designDecodes = 8.7

// decodes is the work in yardsticks, so that it can be held against the design on any machine.
func (w work) decodes() float64 { return w.Nanoseconds / w.Decode }

const product = "github.com/afterwrite/afterwrite"

var (
	benchmarkLine = regexp.MustCompile(`(?m)^BenchmarkDispatch\S*\s+\d+\s+([\d.]+) ns/op\s+(\d+) B/op\s+(\d+) allocs/op`)
	yardstickLine = regexp.MustCompile(`(?m)^BenchmarkStrictDecode\S*\s+\d+\s+([\d.]+) ns/op`)
)

// ownWork runs the dispatcher's own micro-benchmark, which stands beside its code.
func ownWork(ctx context.Context, n int) (work, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", product).Output()
	if err != nil {
		return work{}, fmt.Errorf("find the product's source, which --only leaves out if it is not there: %w", err)
	}
	//nolint:gosec // the number is ours
	test := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark(Dispatch|StrictDecode)$", "-benchmem",
		"-benchtime", strconv.Itoa(n)+"x", "./dispatcher")
	test.Dir = string(bytes.TrimSpace(dir))
	out, err := test.CombinedOutput()
	if err != nil {
		return work{}, fmt.Errorf("run the dispatcher's benchmark: %w\n%s", err, out)
	}
	return parseWork(out)
}

func parseWork(out []byte) (w work, err error) {
	found, yardstick := benchmarkLine.FindSubmatch(out), yardstickLine.FindSubmatch(out)
	if found == nil || yardstick == nil {
		return work{}, fmt.Errorf("the dispatcher's benchmark printed no figure: %s", out)
	}
	if w.Nanoseconds, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
		return work{}, fmt.Errorf("read the dispatcher's benchmark: %w", err)
	}
	if w.Decode, err = strconv.ParseFloat(string(yardstick[1]), 64); err != nil {
		return work{}, fmt.Errorf("read the dispatcher's benchmark: %w", err)
	}
	if w.Bytes, err = strconv.Atoi(string(found[2])); err != nil {
		return work{}, fmt.Errorf("read the dispatcher's benchmark: %w", err)
	}
	if w.Allocs, err = strconv.Atoi(string(found[3])); err != nil {
		return work{}, fmt.Errorf("read the dispatcher's benchmark: %w", err)
	}
	return w, nil
}
