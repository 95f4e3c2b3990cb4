package core_test

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

var update = flag.Bool("update", false, "rewrite the results of the fixtures and the stories, to review as a diff")

// fixture is one case. testdata/README.md describes every member.
type fixture struct {
	Name      string          `json:"name"`
	Installed string          `json:"installed"`
	Actor     *string         `json:"actor"`
	Journal   []fixtureEntry  `json:"journal"`
	Command   jsontext.Value  `json:"command"`
	Needs     [][]string      `json:"needs"`
	Result    *fixtureResult  `json:"result,omitzero"`
	Rejection *fixtureVerdict `json:"rejection,omitzero"`
}

type fixtureEntry struct {
	Dispatch string         `json:"dispatch"`
	Sequence uint64         `json:"sequence"`
	Record   jsontext.Value `json:"record"`
}

// fixtureFiles are the files of cases; given.json is what they refer to by name.
func fixtureFiles(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		tb.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool {
		return file == givenFile || file == identitiesFile
	})
	if len(files) == 0 {
		tb.Fatal("testdata holds no cases")
	}
	return files
}

func readFixtures(tb testing.TB, file string) []fixture {
	tb.Helper()
	var cases []fixture
	readJSON(tb, file, &cases)
	return cases
}

func TestFixturesHold(t *testing.T) {
	g := readGiven(t)
	names := map[string]string{}
	for _, file := range fixtureFiles(t) {
		cases := readFixtures(t, file)
		for i := range cases {
			c := &cases[i]
			if before, taken := names[c.Name]; taken {
				t.Errorf("%s and %s both have a case %q", before, file, c.Name)
			}
			names[c.Name] = file
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json")+"/"+c.Name, func(t *testing.T) {
				if *update {
					c.Result, c.Rejection = g.outcome(t, c, g.run(t, c, plain))
				}
				g.hold(t, c)
			})
		}
		if *update {
			writeJSON(t, file, cases)
		}
	}
}

// hold checks a case in every way the README promises.
func (g *given) hold(t *testing.T, c *fixture) {
	first := g.run(t, c, plain)
	g.want(t, c, "as it stands", first)
	g.want(t, c, "a second time", g.again(t, first))
	if untouched := g.prepare(t, c, plain); !reflect.DeepEqual(untouched.state, first.state) ||
		!reflect.DeepEqual(untouched.command, first.command) {
		t.Errorf("Commit changed its arguments (- before, + after):\n%s%s",
			cmp.Diff(untouched.state, first.state, sameSchemas), cmp.Diff(untouched.command, first.command, sameSchemas))
	}
	for name, p := range permutations {
		if p.matters(first.result) {
			continue
		}
		g.want(t, c, "with "+name, g.run(t, c, p))
	}
	for key := range first.state.Journal {
		state := first.state
		state.Journal = maps.Clone(state.Journal)
		delete(state.Journal, key)
		if _, err := core.Commit(first.command, state, first.actor); !errors.Is(err, core.ErrNotLoaded) {
			t.Errorf("Commit without %v: %v, want ErrNotLoaded", key, err)
		}
		if needs := core.Needs(first.command, state, first.actor); !slices.Equal(needs, []core.Key{key}) {
			t.Errorf("Needs without %v: %v", key, needs)
		}
	}
}

func (g *given) want(t *testing.T, c *fixture, how string, got attempt) {
	t.Helper()
	result, rejection := g.outcome(t, c, got)
	want, have := verdictJSON(t, c.Result, c.Rejection), verdictJSON(t, result, rejection)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (- fixture, + core):\n%s", how, diff)
	}
}

// attempt is one command committed, and what it was committed on.
type attempt struct {
	command core.Command
	state   core.State
	actor   core.Actor
	result  *core.Result
	err     error
}

// prepare builds the arguments of a case, its journal loaded in the rounds that the case names.
func (g *given) prepare(t *testing.T, c *fixture, p permutation) attempt {
	t.Helper()
	a := attempt{
		command: g.command(t, c.Command, p),
		state:   core.State{Installed: g.installed(t, c.Installed, p), Journal: map[core.Key]core.Entry{}},
	}
	if c.Actor != nil {
		a.actor.Operator = *c.Actor
	}
	journal := map[core.Key]core.Entry{}
	for _, e := range c.Journal {
		journal[g.key(t, e.Dispatch)] = core.Entry{Sequence: e.Sequence, Record: g.record(t, e.Record)}
	}
	for i, round := range c.Needs {
		var want []core.Key
		for _, name := range round {
			want = append(want, g.key(t, name))
		}
		if needs := core.Needs(a.command, a.state, a.actor); !slices.Equal(needs, want) {
			t.Fatalf("round %d needs %v, want %v", i+1, needs, want)
		}
		for _, key := range want {
			a.state.Journal[key] = journal[key]
		}
	}
	if needs := core.Needs(a.command, a.state, a.actor); len(needs) > 0 {
		t.Fatalf("after the last round %v is needed", needs)
	}
	return a
}

func (g *given) run(t *testing.T, c *fixture, p permutation) attempt {
	t.Helper()
	return g.again(t, g.prepare(t, c, p))
}

func (g *given) again(t *testing.T, a attempt) attempt {
	t.Helper()
	a.result, a.err = core.Commit(a.command, a.state, a.actor)
	if (a.result == nil) == (a.err == nil) {
		t.Fatalf("Commit gave result %v and error %v, want exactly one", a.result, a.err)
	}
	return a
}

// permutation changes an order that must not matter.
type permutation struct {
	// allowlist reverses the allowlists.
	allowlist bool
	// data reverses the members of every object in the raw data.
	data bool
	// intents reverses the intents of a result.
	intents bool
}

// matters reports whether the order is part of the decision: that of the bytes of a document that is refused by
// their digest, and that of the intents of a result that is taken.
func (p permutation) matters(r *core.Result) bool {
	if r == nil || r.Save == nil {
		return false
	}
	record := r.Save.Record
	return p.data && r.Save.Refusal != nil ||
		p.intents && (record == nil || record.Code != events.CodeResultContractRejected)
}

var (
	plain        permutation
	permutations = map[string]permutation{
		"allowlists reversed": {allowlist: true},
		"members reversed":    {data: true},
		"intents reversed":    {data: true, intents: true},
	}
)

// sameSchemas compares compiled payload schemas as what they are to the core: opaque.
var sameSchemas = cmp.Comparer(func(a, b *events.PayloadSchema) bool { return a == b })

func readJSON(tb testing.TB, file string, v any) {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(true)); err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(layout(data, ""), '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// layout writes short values on one line and long ones a member or element a line, so that a diff shows what changed.
func layout(value jsontext.Value, indent string) []byte {
	const width = 110
	if err := value.Compact(); err != nil || len(value) <= width || value.Kind() != '{' && value.Kind() != '[' {
		return value
	}
	out := []byte{value[0]}
	for i, part := range parts(value) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, "\n\t"...), indent...)
		if part.name != nil {
			out = append(append(out, part.name...), ": "...)
		}
		out = append(out, layout(part.value, indent+"\t")...)
	}
	return append(append(append(out, '\n'), indent...), value[len(value)-1])
}

// part is one member, or one element if its name is nil.
type part struct{ name, value jsontext.Value }

// parts splits a valid object or array, whose members may stand twice.
func parts(value jsontext.Value) []part {
	dec := jsontext.NewDecoder(strings.NewReader(string(value)), jsontext.AllowDuplicateNames(true))
	object := value.Kind() == '{'
	var all []part
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		var p part
		if object {
			p.name, err = dec.ReadValue()
			p.name = p.name.Clone()
		}
		if err == nil {
			p.value, err = dec.ReadValue()
			p.value = p.value.Clone()
			all = append(all, p)
		}
	}
	return all
}

// reversed gives value with the members of every object, and on demand the elements of "intents", in reverse order.
// What is no JSON stays as it is.
func reversed(value jsontext.Value, intents bool) jsontext.Value {
	if !value.IsValid(jsontext.AllowDuplicateNames(true)) || value.Kind() != '{' && value.Kind() != '[' {
		return value
	}
	all := parts(value)
	for i, p := range all {
		all[i].value = reversed(p.value, intents)
		if intents && string(p.name) == `"intents"` {
			elements := parts(all[i].value)
			slices.Reverse(elements)
			all[i].value = join('[', elements, ']')
		}
	}
	if value.Kind() == '[' {
		return join('[', all, ']')
	}
	slices.Reverse(all)
	return join('{', all, '}')
}

func join(open byte, all []part, end byte) jsontext.Value {
	out := jsontext.Value{open}
	for i, p := range all {
		if i > 0 {
			out = append(out, ',')
		}
		if p.name != nil {
			out = append(append(out, p.name...), ':')
		}
		out = append(out, p.value...)
	}
	return append(out, end)
}
