package test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestWholeInstallationsRenderAsReviewed(t *testing.T) {
	for name, file := range map[string]string{"minimal": minimal, "full": full} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			for _, o := range render(t, values(t, file)) {
				out.WriteString("---\n")
				out.Write(whole(t, o))
			}
			golden(t, filepath.Join("testdata/golden", name+".yaml"), out.Bytes())
		})
	}
}

// An option's golden file holds what it changes in the minimal installation, member by member.
func TestEachOptionChangesWhatWasReviewedAndNothingElse(t *testing.T) {
	before := render(t, values(t, minimal))
	for _, file := range optionFiles(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			changes := difference(t, before, render(t, values(t, minimal, file)))
			if len(changes) == 0 {
				t.Error("the option changes nothing")
			}
			golden(t, filepath.Join("testdata/golden/options", name+".diff"), changes)
		})
	}
}

func TestNoGoldenFileIsLeftOver(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/options/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".diff")
		if _, err := os.Stat(filepath.Join("testdata/options", name+".yaml")); err != nil {
			t.Errorf("%s is of no option", file)
		}
	}
}

// difference is what became of each object: nothing, its members one by one, or all of it.
func difference(t *testing.T, before, after []object) []byte {
	t.Helper()
	byName := func(objects []object) map[string]object {
		m := map[string]object{}
		for _, o := range objects {
			m[o.name()] = o
		}
		return m
	}
	had, has := byName(before), byName(after)
	all := maps.Clone(had)
	maps.Copy(all, has)
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b, was := had[name]
		a, is := has[name]
		switch {
		case !is:
			fmt.Fprintf(&out, "- %s\n", name)
		case !was:
			fmt.Fprintf(&out, "+ %s\n", name)
			for line := range strings.Lines(string(whole(t, a))) {
				out.WriteString("+   " + line)
			}
		default:
			lines := changedMembers(members(t, b), members(t, a))
			if len(lines) > 0 {
				fmt.Fprintf(&out, "  %s\n%s\n", name, strings.Join(lines, "\n"))
			}
		}
	}
	return out.Bytes()
}

func changedMembers(before, after map[string]string) []string {
	var lines []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		b, was := before[path]
		a, is := after[path]
		if was && (!is || b != a) {
			lines = append(lines, "-   "+path+": "+b)
		}
		if is && (!was || b != a) {
			lines = append(lines, "+   "+path+": "+a)
		}
	}
	return lines
}

// members are the values in an object by their path. An item of a list is called by its name or key if it has one, so
// that an item more does not make all the others differ.
func members(t *testing.T, o object) map[string]string {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(o.text, &v); err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				walk(strings.TrimPrefix(path+"."+name, "."), member)
			}
		case []any:
			for i, item := range v {
				at := fmt.Sprint(i)
				if named, ok := item.(map[string]any); ok {
					for _, key := range []string{"name", "topologyKey"} {
						if name, ok := named[key].(string); ok {
							at = name
						}
					}
				}
				walk(path+"["+at+"]", item)
			}
		default:
			m[path] = fmt.Sprintf("%q", fmt.Sprint(v))
		}
		switch empty := v.(type) {
		case map[string]any:
			if len(empty) == 0 {
				m[path] = "{}"
			}
		case []any:
			if len(empty) == 0 {
				m[path] = "[]"
			}
		}
	}
	walk("", v)
	return m
}

// whole is the object without what only the layout of the templates decides.
func whole(t *testing.T, o object) []byte {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(o.text, &v); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); -update writes it anew:\n%s", file, diff)
	}
}
