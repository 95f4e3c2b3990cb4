package crashtest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/dispatcher/failpoint"
)

var (
	full = flag.Bool("full", false, "die at every point of every path, each at its first hits")
	hits = flag.Int("hits", 4, "with -full, how many hits of a point are tried")
	side = flag.Int("side", 8, "how many cases run side by side: each mostly waits")
)

// binary is the dispatcher, built so that it can be killed.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "crashtest-")
	if err == nil {
		binary = filepath.Join(dir, "dispatcher")
		err = build(binary, "-tags", "failpoint")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = os.RemoveAll(dir) // in the system's temporary folder anyway
	os.Exit(code)
}

const root = "../.."

func build(out string, flags ...string) error {
	return run("go", append(append([]string{"build"}, flags...), "-o", out, "./cmd/dispatcher")...)
}

func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, said)
	}
	return nil
}

// point is where the dispatcher dies: before or after an effect, at its nth hit.
type point struct {
	after  bool
	effect failpoint.Effect
	hit    int
}

func (p *point) String() string {
	if p == nil {
		return "no point"
	}
	when := "before"
	if p.after {
		when = "after"
	}
	return fmt.Sprintf("%s_%s:%d", when, p.effect, p.hit)
}

// quick are the points that are always tried, by path: one of each kind of effect that it has.
var quick = map[string][]point{
	"receipts": {
		{after: true, effect: failpoint.Call, hit: 1}, {after: true, effect: failpoint.Append, hit: 1},
		{effect: failpoint.Publish, hit: 2}, {effect: failpoint.Acknowledge, hit: 1},
	},
	"wake-ups": {
		{effect: failpoint.Schedule, hit: 1}, {after: true, effect: failpoint.Schedule, hit: 1},
		{effect: failpoint.Acknowledge, hit: 3},
	},
	"redrive": {
		{after: true, effect: failpoint.Schedule, hit: 1}, {after: true, effect: failpoint.Append, hit: 1},
		{after: true, effect: failpoint.Answer, hit: 1},
	},
	"crowd": {{after: true, effect: failpoint.Progress, hit: 1}},
}

func TestKilledAnywhereNothingIsLostAndNothingIsDoubled(t *testing.T) {
	slots := make(chan struct{}, *side)
	var kills atomic.Int64
	var cases sync.WaitGroup
	try := func(p path, at point) (hit bool) {
		slots <- struct{}{}
		defer func() { <-slots }()
		t.Run(fmt.Sprintf("%s/%v", p.name, &at), func(t *testing.T) { hit = die(t, p, at) })
		if hit {
			kills.Add(1)
		}
		return hit
	}
	for _, p := range paths {
		if !*full {
			for _, at := range quick[p.name] {
				cases.Go(func() {
					if !try(p, at) {
						t.Errorf("the path of %s never came to %v", p.name, &at)
					}
				})
			}
			continue
		}
		for _, effect := range failpoint.Effects {
			for _, after := range []bool{false, true} {
				cases.Go(func() {
					for n := 1; n <= *hits && try(p, point{after, effect, n}); n++ {
						continue
					}
				})
			}
		}
	}
	cases.Wait()
	t.Logf("killed %d times", kills.Load())
}

// die runs the path with a dispatcher that dies at the point, then with one that lives, and holds what is there.
func die(t *testing.T, p path, at point) (hit bool) {
	w := newWorld(t, p.places)
	if p.before != nil {
		p.before(w)
	}
	mortal := w.start(&at)
	if p.during != nil {
		p.during(w, mortal.ended)
	}
	w.settled(mortal.ended)
	_ = mortal.cmd.Process.Signal(os.Interrupt) // it may be dead already, or still die while it stops
	<-mortal.ended
	if mortal.err == nil {
		// It never came there, and has settled everything by itself.
		w.hold(p)
		return false
	}
	if !mortal.killed() {
		t.Fatalf("the dispatcher ended with %v, and not by the point", mortal.err)
	}
	w.start(nil)
	if p.after != nil {
		p.after(w)
	}
	w.settled(nil)
	w.hold(p)
	return true
}

func TestAnUntaggedBinaryHasNoFailpoints(t *testing.T) {
	files, err := exec.Command("go", "list", "-f", "{{.GoFiles}}", "github.com/afterwrite/afterwrite/dispatcher/failpoint").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(files)); got != "[effect.go off.go]" {
		t.Errorf("without the tag the package has the files %s", got)
	}
	if !*full {
		return
	}
	// And nothing of it is left in the program.
	untagged := filepath.Join(t.TempDir(), "dispatcher")
	if err := build(untagged); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]bool{untagged: false, binary: true} {
		symbols, err := exec.Command("go", "tool", "nm", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(symbols, []byte("dispatcher/failpoint.")); got != want {
			t.Errorf("symbols of failpoints in %s: %t, want %t", filepath.Base(program), got, want)
		}
	}
}
