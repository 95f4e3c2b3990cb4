// Command bench measures what a dispatch costs: Afterwrite beside the broker's limit, the usual way to write the same,
// and its peers. It prints one table, in Markdown and in JSON.
//
// # What is compared
//
//	limit      limit.go      the dispatcher's broker operations and nothing else, as an event loop
//	floor      floor.go      the same, the usual way: a goroutine per receipt, every answer awaited
//	ours       ours.go       the dispatcher as shipped, its hooks served by the provider SDK
//	watermill  watermill.go  a router on JetStream, as documented and tuned to our semantics
//	dbos       dbos.go       a workflow on SQLite
//	river      river.go      a job on SQLite
//
// Limit, floor and tuned Watermill use the product's own streams, so that the broker stores the same under the same
// rules for each of them. Their messages have 900 bytes and nobody looks into them.
//
// # Processes
//
// The broker, the provider and each worker (what is measured) are processes of their own, this program started again
// with a role (child.go): CPU, allocations and memory then belong to somebody, and a garbage collector serves one of
// them. It is the same for every variant, but for peers that run in one process by nature: those call their provider
// in process, which is in their favour. All processes share the machine's cores. On few cores a variant that leaves
// the broker more of them is faster by that much, as it would be in a small deployment.
//
// # A measurement
//
// The broker is new and its store empty. Receipts are published first, so that the publisher takes no part; then the
// workers start. The clock runs from a tenth of the dispatches to nine tenths, so that it sees neither the start nor the
// end, and there is as much under way when it stops as when it started. Variants alternate within a run: whatever else
// the machine does, it does to all of them. Of the runs the median is given, with the lowest and the highest.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	Small      bool     `help:"A minute's worth of everything, to see that it works: its numbers mean nothing."`
	Runs       int      `default:"5" help:"Measurements of each row."`
	Dispatches int      `default:"100000" help:"Dispatches of one measurement. Slow peers do a part of them."`
	Latencies  int      `default:"20000" help:"Receipts of one latency measurement."`
	Journaled  []int    `default:"1000000,3000000" help:"Sizes of the journal at which the broker's memory and the throughput are measured."`
	Only       []string `placeholder:"GROUP" help:"Measure only these groups: ${groups}."`
	Match      string   `placeholder:"REGEXP" help:"Measure only rows whose name matches, such as '(ours|floor), 1 hook$$'."`
	Dir        string   `type:"path" placeholder:"DIR" help:"Where stores are kept while they are measured. By default a temporary directory."`
	JSON       string   `name:"json" type:"path" placeholder:"FILE" help:"Write everything that was measured to a file."`
	Markdown   string   `type:"path" placeholder:"FILE" help:"Write the table to a file instead of the standard output."`
	Profile    string   `type:"path" placeholder:"DIR" help:"Write CPU and allocation profiles of broker, provider and worker, one of each per measurement."`

	Job string `hidden:"" help:"What a child process is to do."`
}

// small is what --small measures.
func (o *options) small() {
	o.Runs, o.Dispatches, o.Latencies, o.Journaled = 1, 3000, 300, []int{10_000}
}

func main() {
	var o options
	parsed := kong.Parse(&o,
		kong.Name("bench"),
		kong.Description("Measure Afterwrite beside the broker's limit, the usual way, and its peers."),
		kong.Vars{"groups": strings.Join(groupNames(), ", ")},
	)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parsed.FatalIfErrorf(run(ctx, o))
}

func run(ctx context.Context, o options) error {
	if o.Job != "" {
		var j job
		if err := json.Unmarshal([]byte(o.Job), &j); err != nil {
			return fmt.Errorf("read the job: %w", err)
		}
		return serve(ctx, j, os.Stdin, os.Stdout)
	}
	if o.Small {
		o.small()
	}
	if err := o.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.Dir, "afterwrite-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for the stores: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in a directory for temporary files
	b := &bench{options: o, dir: dir, started: time.Now()}
	r, err := b.measureAll(ctx)
	if err != nil {
		return err
	}
	return r.write(o)
}

func (o *options) validate() error {
	if o.Runs < 1 || o.Dispatches < 100 || o.Latencies < 1 {
		return fmt.Errorf("--runs and --latencies must be at least 1, --dispatches at least 100")
	}
	for _, name := range o.Only {
		if !slices.Contains(groupNames(), name) {
			return fmt.Errorf("--only must be of %s", strings.Join(groupNames(), ", "))
		}
	}
	for _, size := range o.Journaled {
		if size < 1 {
			return fmt.Errorf("--journaled must be positive")
		}
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o750); err != nil {
			return fmt.Errorf("make --profile: %w", err)
		}
	}
	return nil
}

// bench is one run of the program.
type bench struct {
	options
	dir     string
	started time.Time
	beds    int
}

// store is a new directory for one broker or database.
func (b *bench) store() (string, error) {
	b.beds++
	dir := filepath.Join(b.dir, fmt.Sprintf("%04d", b.beds))
	return dir, os.Mkdir(dir, 0o750)
}

// log tells the person who waits what is being measured.
func (b *bench) log(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}
