package flags_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/streams"
)

func TestASizeIsReadAndWrittenWithItsUnit(t *testing.T) {
	for text, want := range map[string]flags.Size{
		"0": 0, "65536": 65536, "12B": 12, "3KiB": 3072, "512MiB": 536870912, "4GiB": 4294967296, "1TiB": 1099511627776, "-1": -1,
	} {
		var got flags.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, err, want)
		}
	}
	for size, want := range map[flags.Size]string{0: "0", 1: "1", 1536: "1536", 2048: "2KiB", 2147483648: "2GiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written %s, want %s", int64(size), got, want)
		}
	}
}

func TestWhatIsNoSizeIsRefusedWithTheRule(t *testing.T) {
	for _, text := range []string{"", "GiB", "1.5GiB", "4 GiB", "4G", "4gib", "9999999TiB", "ten"} {
		var got flags.Size
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "must be ") {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}

func parse(t *testing.T, f *flags.Streams, args ...string) error {
	t.Helper()
	parser, err := kong.New(f, flags.StreamsVars())
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return err
}

func TestStreamsFlagsDefaultToTheTopologysDefaults(t *testing.T) {
	var f flags.Streams
	if err := parse(t, &f); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(streams.Settings{}.WithDefaults(), f.Settings()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestEveryStreamsFlagReachesItsSetting(t *testing.T) {
	t.Setenv("AFTERWRITE_JOURNAL_AGE", "240h")
	var f flags.Streams
	err := parse(t, &f, "--storage=memory", "--replicas=3", "--receipts-age=48h", "--intents-age=250h",
		"--executions-age=260h", "--duplicate-window=100ms", "--receipts-size=1MiB", "--journal-size=2MiB",
		"--intents-size=3MiB", "--executions-size=4MiB", "--ack-wait=7s", "--max-ack-pending=9")
	if err != nil {
		t.Fatal(err)
	}
	want := streams.Settings{
		Storage: streams.MemoryStorage, Replicas: 3, ReceiptsAge: 48 * time.Hour, JournalAge: 240 * time.Hour,
		IntentsAge: 250 * time.Hour, ExecutionsAge: 260 * time.Hour, DuplicateWindow: 100 * time.Millisecond,
		ReceiptsMaxBytes: 1 << 20, JournalMaxBytes: 2 << 20, IntentsMaxBytes: 3 << 20, ExecutionsMaxBytes: 4 << 20,
		AckWait: 7 * time.Second, MaxAckPending: 9,
	}
	if diff := cmp.Diff(want, f.Settings()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestDurationsAreWrittenWithoutTheirZeroParts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 100 * time.Millisecond: "100ms", 30 * time.Second: "30s", 10 * time.Minute: "10m",
		90 * time.Second: "1m30s", 72 * time.Hour: "72h", time.Hour + time.Second: "1h0m1s", 20*time.Hour + 10*time.Minute: "20h10m",
	} {
		if got := flags.Duration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestALogHasTheLevelAndFormatThatWereAskedFor(t *testing.T) {
	for format, want := range map[string]string{"json": `"msg":"heard"`, "console": "WARN\theard"} {
		var f flags.Log
		parser, err := kong.New(&f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse([]string{"--log-level=warn", "--log-format=" + format}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := f.Logger(&out)
		log.Info("not heard")
		log.Warn("heard")
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "not heard") {
			t.Errorf("%s: %s", format, &out)
		}
	}
}

func TestWhatSettingsRefuseIsSaidInTheNamesOfTheFlags(t *testing.T) {
	parser, err := kong.New(new(flags.Streams), flags.StreamsVars())
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, flag := range parser.Model.Flags {
		known = append(known, "--"+flag.Name)
	}
	for field := range reflect.TypeFor[streams.Settings]().Fields() {
		said := flags.Named(errors.New(field.Name)).Error()
		switch field.Name {
		case "Hooks", "Executors": // files say those
			if said != field.Name {
				t.Errorf("%s is called %s", field.Name, said)
			}
		case "RetryHorizon":
			if said != "the longest retry of a profile" {
				t.Errorf("%s is called %s", field.Name, said)
			}
		default:
			if !slices.Contains(known, said) {
				t.Errorf("%s is called %s, which is no flag", field.Name, said)
			}
		}
	}
	if flags.Named(nil) != nil {
		t.Error("nothing that is wrong is an error")
	}
}
