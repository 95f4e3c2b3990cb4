package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"github.com/afterwrite/afterwrite/streams"
)

// role is what a child process is.
type role string

const (
	roleBroker         role = "broker"
	roleProvider       role = "provider"
	roleEcho           role = "echo"
	roleLimit          role = "limit"
	roleFloor          role = "floor"
	roleOurs           role = "ours"
	roleWatermill      role = "watermill"
	roleWatermillTuned role = "watermill_tuned"
	roleDBOS           role = "dbos"
	roleRiver          role = "river"
)

var roles = map[role]func(context.Context, job) (*served, error){
	roleBroker:         serveBroker,
	roleProvider:       serveProvider,
	roleEcho:           serveEcho,
	roleLimit:          serveLimit,
	roleFloor:          serveFloor,
	roleOurs:           serveOurs,
	roleWatermill:      serveWatermill,
	roleWatermillTuned: serveWatermillTuned,
	roleDBOS:           serveDBOS,
	roleRiver:          serveRiver,
}

// job is what a child is told.
type job struct {
	Role role `json:"role"`
	// URL of the broker, for everybody else.
	URL string `json:"url,omitempty"`
	// Store is a directory, for who keeps one.
	Store      string          `json:"store,omitempty"`
	Storage    streams.Storage `json:"storage,omitempty"`
	SyncAlways bool            `json:"sync_always,omitempty"`
	Hooks      int             `json:"hooks,omitempty"`
	// Receipts to work on, for who brings its own.
	Receipts int `json:"receipts,omitempty"`
	// Profile is where profiles are written, without their ending.
	Profile string `json:"profile,omitempty"`
}

// served is a role at work.
type served struct {
	url string
	// done counts dispatches, where no broker does.
	done func() int64
	stop func() error
}

// answer is a line that a child writes: first about itself, then one for each line it reads.
type answer struct {
	URL   string `json:"url,omitempty"`
	Done  int64  `json:"done,omitempty"`
	Usage usage  `json:"usage"`
}

// What a child is asked.
const (
	askDone  = "done"
	askUsage = "usage"
	// askLive is askUsage after a garbage collection, so that the heap is what is live.
	askLive = "live"
)

// serve plays a role until in ends, which it also does when the parent dies.
func serve(ctx context.Context, j job, in io.Reader, out io.Writer) error {
	begin, known := roles[j.Role]
	if !known {
		return fmt.Errorf("the role must be known, it is %q", j.Role)
	}
	profiles, err := startProfiles(j.Profile)
	if err != nil {
		return err
	}
	s, err := begin(ctx, j)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Role, err)
	}
	answers := json.NewEncoder(out)
	if err := answers.Encode(answer{URL: s.url}); err != nil {
		return errors.Join(err, s.stop())
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var a answer
		switch lines.Text() {
		case askDone:
			a.Done = s.done()
		case askLive:
			runtime.GC()
			runtime.GC() // what the first one's finalizers released
			a.Usage, err = ownUsage()
		case askUsage:
			a.Usage, err = ownUsage()
		}
		if err == nil {
			err = answers.Encode(a)
		}
		if err != nil {
			return errors.Join(err, s.stop())
		}
	}
	if err := s.stop(); err != nil {
		return fmt.Errorf("%s: %w", j.Role, err)
	}
	return profiles.stop()
}

// crash ends a child that cannot go on; its parent notices. Its work runs in callbacks that have nobody to return to.
func crash(err error) {
	_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// child is a process of a measurement.
type child struct {
	role    role
	url     string
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// start runs this program again as j.Role, and returns once it is at work.
func start(ctx context.Context, j job) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	told, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("write the job: %w", err)
	}
	c := &child{role: j.Role, command: exec.CommandContext(ctx, self, "--job", string(told))} //nolint:gosec // it is this program
	c.command.Stderr = os.Stderr
	// An interrupt of the terminal reaches the parent only, which then ends its children in order.
	ownGroup(c.command)
	if c.in, err = c.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", j.Role, err)
	}
	out, err := c.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", j.Role, err)
	}
	c.out = json.NewDecoder(out)
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", j.Role, err)
	}
	var a answer
	if err := c.out.Decode(&a); err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not start: %w", j.Role, err), c.stop())
	}
	c.url = a.URL
	return c, nil
}

func (c *child) ask(what string) (answer, error) {
	var a answer
	_, err := fmt.Fprintln(c.in, what)
	if err == nil {
		err = c.out.Decode(&a)
	}
	if err != nil {
		return a, fmt.Errorf("ask %s for %s: %w", c.role, what, err)
	}
	return a, nil
}

// stop has the child stop in order, and waits for its end.
func (c *child) stop() error {
	_ = c.in.Close() // it may be gone already, which Wait tells better
	if err := c.command.Wait(); err != nil {
		return fmt.Errorf("%s ended: %w", c.role, err)
	}
	return nil
}

// stopAll stops children, the last one first.
func stopAll(children []*child) error {
	var err error
	for _, c := range slices.Backward(children) {
		err = errors.Join(err, c.stop())
	}
	return err
}
