package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pure are the folders in which what happens depends on arguments only.
var pure = []string{"dispatcher/core", "dispatcher/lane", "executors/core", "events"}

// impure names, by package, the functions that a pure package may import but not call.
var impure = map[string][]string{
	"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

// names of subjects and streams, however a literal continues them.
var names = regexp.MustCompile(`(^|[^A-Za-z0-9_])pwh\.|PWH_`)

func TestPurePackagesKnowNeitherClockNorGoroutine(t *testing.T) {
	for name, source := range sources(t) {
		if slices.Contains(pure, filepath.ToSlash(filepath.Dir(name))) {
			for _, fault := range impurities(t, name, source) {
				t.Errorf("%s: what a pure package does depends on its arguments only, so that it can be run again and simulated", fault)
			}
		}
	}
}

func TestNamesOfSubjectsAndStreamsAreSpelledInStreamsOnly(t *testing.T) {
	for name, source := range sources(t) {
		if !strings.HasPrefix(filepath.ToSlash(name), "streams/") {
			for _, fault := range spelledNames(t, name, source) {
				t.Errorf("%s: package streams builds and parses every subject and stream name, so that they can change in one place", fault)
			}
		}
	}
}

// sources reads every Go file of the repository that is not a test, by its path from the root.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name == "testdata" || strings.HasPrefix(name, ".") && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		files[relative] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no source to look at")
	}
	return files
}

// impurities lists, by position, what reads a clock, waits, prints or runs beside its caller.
func impurities(t *testing.T, name, source string) []string {
	t.Helper()
	positions, file := parse(t, name, source)
	var found []string
	report := func(pos token.Pos, what string) {
		found = append(found, fmt.Sprintf("%s: %s", positions.Position(pos), what))
	}
	imported := map[string]string{} // by the name used in the file
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		local := path
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			report(spec.Pos(), "an import without a name")
		}
		imported[local] = path
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			report(node.Pos(), "a goroutine")
		case *ast.SelectStmt:
			report(node.Pos(), "a select")
		case *ast.ChanType:
			report(node.Pos(), "a channel")
		case *ast.SelectorExpr:
			if pkg, ok := node.X.(*ast.Ident); ok && slices.Contains(impure[imported[pkg.Name]], node.Sel.Name) {
				report(node.Pos(), imported[pkg.Name]+"."+node.Sel.Name)
			}
		}
		return true
	})
	return found
}

// spelledNames lists, by position, the string literals that name a subject or a stream.
func spelledNames(t *testing.T, name, source string) []string {
	t.Helper()
	positions, file := parse(t, name, source)
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if value, err := strconv.Unquote(literal.Value); err == nil && names.MatchString(value) {
			found = append(found, fmt.Sprintf("%s: %s", positions.Position(literal.Pos()), literal.Value))
		}
		return true
	})
	return found
}

func parse(t *testing.T, name, source string) (*token.FileSet, *ast.File) {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return positions, file
}

func TestImpurityIsFound(t *testing.T) {
	const source = `package core

import (
	"fmt"
	clock "time"
	. "strings"
)

type later chan int

func decide(at clock.Time) string {
	go decide(at)
	select {}
	fmt.Println(clock.Since(at))
	now := clock.Now
	_ = now
	return fmt.Sprint(at.After(at), clock.Second)
}
`
	want := []string{
		"core.go:6:2: an import without a name",
		"core.go:9:12: a channel",
		"core.go:12:2: a goroutine",
		"core.go:13:2: a select",
		"core.go:14:2: fmt.Println",
		"core.go:14:14: time.Since",
		"core.go:15:9: time.Now",
	}
	if diff := cmp.Diff(want, impurities(t, "core.go", source)); diff != "" {
		t.Error("impurities differ (-want +got):\n" + diff)
	}
}

func TestSpelledNameIsFound(t *testing.T) {
	const source = "package dispatcher\n\n// pwh.call.x is only spoken of here.\n" + `
const (
	call    = "pwh.call."
	filter  = ` + "`$JS.API.STREAM.INFO.PWH_JOURNAL`" + `
	all     = ">.pwh.>"
	id      = "pwh_sha256_"
	version = "io.afterwrite.pwhx.v0"
)
`
	want := []string{
		`x.go:6:12: "pwh.call."`,
		"x.go:7:12: `$JS.API.STREAM.INFO.PWH_JOURNAL`",
		`x.go:8:12: ">.pwh.>"`,
	}
	if diff := cmp.Diff(want, spelledNames(t, "x.go", source)); diff != "" {
		t.Error("names differ (-want +got):\n" + diff)
	}
}
