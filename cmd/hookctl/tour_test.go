package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
)

var update = flag.Bool("update", false, "write what the commands of the README print anew")

const root = "../.."

var (
	// tourBlock is a block of commands with what they print.
	tourBlock = regexp.MustCompile("(?s)<!-- tour -->\n```console\n(.*?)```\n")
	// aTime is any time as a table shows it, which no two runs have in common.
	aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	// aSize is how much a stream holds, which depends on how many digits its times have.
	aSize = regexp.MustCompile(`[\d.]+ KiB of `)
	// aGap is between columns, as wide as what they hold.
	aGap = regexp.MustCompile(` {2,}`)
)

func TestTheCommandsOfTheREADMEPrintWhatItShows(t *testing.T) {
	const name = root + "/README.md"
	page := string(readFile(t, name))
	published, looked := tourBroker(t, false), tourBroker(t, true)
	shown := tourBlock.ReplaceAllStringFunc(page, func(block string) string {
		var b strings.Builder
		for line := range strings.Lines(tourBlock.FindStringSubmatch(block)[1]) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !ok {
				continue // what it printed before
			}
			broker := looked
			if strings.Contains(command, "receipt publish") {
				broker = published
			}
			b.WriteString("$ " + command + "\n" + tourCommand(t, command, broker))
		}
		return "<!-- tour -->\n```console\n" + b.String() + "```\n"
	})
	if len(tourBlock.FindAllString(page, -1)) != 2 {
		t.Error("the README shows what commands print in two places")
	}
	timeless := func(text string) []string {
		text = aSize.ReplaceAllString(aTime.ReplaceAllString(text, "TIME"), "SIZE of ")
		return strings.Split(aGap.ReplaceAllString(text, "  "), "\n")
	}
	diff := cmp.Diff(timeless(page), timeless(shown))
	if diff == "" {
		return
	}
	if !*update {
		t.Fatalf("go generate ./internal/doccheck writes it anew (-README +printed):\n%s", diff)
	}
	if err := os.WriteFile(name, []byte(shown), 0o644); err != nil { //nolint:gosec // a page is for all to read
		t.Fatal(err)
	}
}

// tourBroker runs everything, fed with the built-in receipts one after the other if asked for, and gives the address.
func tourBroker(t *testing.T, fed bool) string {
	t.Helper()
	s, err := stack.Start(t.Context(), stack.Options{
		Broker: natsembed.Options{StoreDir: t.TempDir(), MaxStoreBytes: 1 << 40}, Profiles: demoProfiles,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if fed {
		lines, err := parseReceipts("demo.jsonl", demoReceipts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := feed(t.Context(), s, lines); err != nil {
			t.Fatal(err)
		}
	}
	return s.URL()
}

// tourCommand gives what a command prints, which must work as far as it can.
func tourCommand(t *testing.T, command, broker string) string {
	t.Helper()
	t.Setenv("AFTERWRITE_NATS_URL", broker)
	args := strings.Fields(command)
	for len(args) > 0 && !strings.HasSuffix(args[0], "hookctl") {
		args = args[1:]
	}
	for i, arg := range args {
		args[i] = strings.Replace(arg, "cmd/hookctl/", "", 1) // where the test runs
	}
	var out, said bytes.Buffer
	if code := run(t.Context(), args[1:], stdio{nil, &out, &said}); code == exitFailed {
		t.Fatalf("%s: %s", command, &said)
	}
	return out.String()
}
