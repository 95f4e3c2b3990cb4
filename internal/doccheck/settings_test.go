package doccheck

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// binaries is where the binaries were built, empty until they are needed.
var binaries string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(binaries) // what stays is where the system clears up
	os.Exit(code)
}

// build builds the binaries, once.
func build(t *testing.T) {
	t.Helper()
	if binaries != "" {
		return
	}
	dir, err := os.MkdirTemp("", "afterwrite-doccheck-") //nolint:usetesting // it outlives the test that needs it first
	if err != nil {
		t.Fatal(err)
	}
	binaries = dir
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "./cmd/...")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the binaries: %v\n%s", err, out)
	}
}

// processors is a number that no machine has and that stands for how many it has.
const processors = "61"

// help is what a command says about itself, a line each.
func help(t *testing.T, words ...string) []string {
	t.Helper()
	build(t)
	cmd := exec.Command(filepath.Join(binaries, words[0]), append(words[1:], "--help")...)
	cmd.Env = []string{"COLUMNS=10000", "GOMAXPROCS=" + processors}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s --help: %v: %s", strings.Join(words, " "), err, &stderr)
	}
	return strings.Split(string(out), "\n")
}

var (
	groupLine   = regexp.MustCompile(`^(\S.*):$`)
	flagLine    = regexp.MustCompile(`^  (?:    |-\w, )?--([\w-]+)(?:=(\S+))?(?: {2,}(.*))?$`)
	commandLine = regexp.MustCompile(`^  (\S.*?) (<command> )?\[flags\]$`)
	environment = regexp.MustCompile(` \(\$([A-Z_]+)(?:, \$[A-Z_]+)*\)`)
	valueName   = regexp.MustCompile(`^[A-Z,.-]+$`) // as in DURATION, which is no default
)

// everywhere are the flags that need no table.
var everywhere = map[string]bool{"help": true, "version": true}

// flagTables gives the flags of a command, a table for each group.
func flagTables(lines []string, leaveOut ...string) string {
	var b strings.Builder
	var rows [][]string
	group := ""
	flush := func() {
		for _, left := range leaveOut {
			if group == left {
				rows = nil
			}
		}
		if len(rows) > 0 {
			if group != "Flags" {
				b.WriteString("\n" + group + ":\n")
			}
			b.WriteString("\n" + table([]string{"flag", "default", "environment", "meaning"}, rows))
		}
		rows = nil
	}
	for _, line := range lines {
		if found := groupLine.FindStringSubmatch(line); found != nil {
			flush()
			group = found[1]
			continue
		}
		found := flagLine.FindStringSubmatch(line)
		if found == nil || everywhere[found[1]] {
			continue
		}
		value, text := strings.Trim(found[2], `"`), found[3]
		switch {
		case valueName.MatchString(value):
			value = ""
		case value == processors:
			value = "one a core"
		case value != "":
			value = code(value)
		}
		variable := ""
		if named := environment.FindStringSubmatch(text); named != nil {
			variable = code(named[1])
			text = strings.Replace(text, named[0], "", 1)
		}
		rows = append(rows, []string{code("--" + found[1]), value, variable, text})
	}
	flush()
	return b.String() + "\n"
}

// binaryFlags gives the flags of a binary. Of a tool's command it gives those to reach the broker, which are the same
// for all.
func binaryFlags(t *testing.T, args []string) string {
	if len(args) == 1 {
		return flagTables(help(t, args[0]))
	}
	var lines []string
	wanted := false
	for _, line := range help(t, args...) {
		if found := groupLine.FindStringSubmatch(line); found != nil {
			wanted = found[1] == reachTheBroker
		}
		if wanted {
			lines = append(lines, line)
		}
	}
	return flagTables(lines)
}

// reachTheBroker is the group of the flags that every command has that asks one.
const reachTheBroker = "Broker"

// commands gives every command of a tool. What several have alike is left out: how to reach the broker, and the
// settings of the streams.
func commands(t *testing.T, args []string) string {
	var b strings.Builder
	lines := help(t, args...)
	for i, line := range lines {
		found := commandLine.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		var words []string
		for word := range strings.FieldsSeq(found[1]) {
			if !strings.ContainsAny(word, "<[") {
				words = append(words, word)
			}
		}
		if found[2] != "" {
			b.WriteString(commands(t, append([]string{args[0]}, words...)))
			continue
		}
		b.WriteString("\n### " + code(args[0]+" "+found[1]) + "\n\n" + strings.TrimSpace(lines[i+1]) + "\n")
		b.WriteString(strings.TrimSuffix(flagTables(help(t, append([]string{args[0]}, words...)...), reachTheBroker, "Streams"), "\n"))
	}
	if len(args) == 1 {
		b.WriteString("\n")
	}
	return b.String()
}
