package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module = "github.com/afterwrite/afterwrite"
	root   = "../.."
)

// graph holds what each package imports. Imports of tests are not in it. Our packages are written relative to the
// module, as in ./dispatcher/core, all others by their path.
type graph map[string][]string

// set is a list of package patterns as the go command writes them, parted by spaces. "..." is every package and
// "./..." every one of ours; a pattern after "!" is taken out of the set.
type set string

func (s set) contains(pkg string) bool {
	in := false
	for pattern := range strings.FieldsSeq(string(s)) {
		pattern, out := strings.CutPrefix(pattern, "!")
		prefix, tree := strings.CutSuffix(pattern, "...")
		if pkg == strings.TrimSuffix(prefix, "/") || tree && strings.HasPrefix(pkg, prefix) {
			in = !out
		}
	}
	return in
}

// violations gives, for every package that breaks the rule, a sentence and the shortest chain of imports.
func (g graph) violations(r rule) []string {
	var found []string
	for from := range g {
		if !r.from.contains(from) {
			continue
		}
		if chain := g.chain(from, r); chain != nil {
			found = append(found, from+" must not reach "+chain[len(chain)-1]+": "+r.because+"\n\t"+strings.Join(chain, "\n\t→ "))
		}
	}
	slices.Sort(found)
	return found
}

func (g graph) chain(from string, r rule) []string {
	importer := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		pkg := queue[0]
		if pkg != from && r.to.contains(pkg) {
			var chain []string
			for ; pkg != ""; pkg = importer[pkg] {
				chain = append(chain, pkg)
			}
			slices.Reverse(chain)
			return chain
		}
		if r.direct && pkg != from {
			continue
		}
		for _, imported := range g[pkg] {
			if _, seen := importer[imported]; !seen {
				importer[imported] = pkg
				queue = append(queue, imported)
			}
		}
	}
	return nil
}

// ourGraph asks the go command. It stays true while a package does not compile: imports are read before types.
func ourGraph(t *testing.T) graph {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	g := graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return g
		} else if err != nil {
			t.Fatal(err)
		}
		imports := []string{}
		for _, path := range pkg.Imports {
			imports = append(imports, relative(path))
		}
		g[relative(pkg.ImportPath)] = imports
	}
}

func relative(path string) string {
	if rest, ok := strings.CutPrefix(path, module); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return path
}

func TestSetHoldsWhatItsPatternsSay(t *testing.T) {
	for _, test := range []struct {
		set  set
		pkg  string
		want bool
	}{
		{"./events/...", "./events", true},
		{"./events/...", "./events/schemas", true},
		{"./events/...", "./eventsource", false},
		{"./events", "./events/schemas", false},
		{"./...", "./cmd/dispatcher", true},
		{"./...", "testing", false},
		{"... !./events/... !time", "os", true},
		{"... !./events/... !time", "./events", false},
		{"... !./events/... !time", "time", false},
		{"./... !./internal/... ./internal/demo", "./internal/demo", true},
		{"net", "net/url", false},
	} {
		if got := test.set.contains(test.pkg); got != test.want {
			t.Errorf("%q contains %s = %t, want %t", test.set, test.pkg, got, test.want)
		}
	}
}

func TestViolationNamesTheReasonAndTheShortestChain(t *testing.T) {
	g := graph{
		"./a":   {"./b", "./d", "fmt"},
		"./b":   {"./c"},
		"./c":   {"bad/lib/sub"},
		"./d":   {"./b"},
		"./e":   {"fmt"},
		"fmt":   {},
		"./bad": {"bad/lib/sub"},
	}
	because := "it is bad"
	for _, test := range []struct {
		name string
		rule rule
		want []string
	}{
		{"transitive", rule{from: "./... !./c !./bad", to: "bad/lib/...", because: because}, []string{
			"./a must not reach bad/lib/sub: it is bad\n\t./a\n\t→ ./b\n\t→ ./c\n\t→ bad/lib/sub",
			"./b must not reach bad/lib/sub: it is bad\n\t./b\n\t→ ./c\n\t→ bad/lib/sub",
			"./d must not reach bad/lib/sub: it is bad\n\t./d\n\t→ ./b\n\t→ ./c\n\t→ bad/lib/sub",
		}},
		{"direct", rule{from: "./... !./bad", to: "bad/lib/...", direct: true, because: because}, []string{
			"./c must not reach bad/lib/sub: it is bad\n\t./c\n\t→ bad/lib/sub",
		}},
		{"kept", rule{from: "./e", to: "... !fmt", because: because}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, g.violations(test.rule)); diff != "" {
				t.Error("violations differ (-want +got):\n" + diff)
			}
		})
	}
}
