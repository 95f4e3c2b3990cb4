package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// Every closed enum that the core speaks, by the type that its constants are declared with. Their values are read
// from the declarations, so that a new one without a fixture fails here.
func TestEveryEnumValueStandsInAFixture(t *testing.T) {
	// Where the value must stand: the member of a case, whatever surrounds it.
	enums := []struct {
		folder, name string
		members      []string
	}{
		{".", "Outcome", []string{"outcome"}},
		{".", "RejectionReason", []string{"reason"}},
		{".", "Pressure", []string{"pressure"}},
		{".", "ReplyKind", []string{"kind"}},
		{"../../events", "Status", []string{"status"}},
		{"../../events", "Code", []string{"code"}},
		{"../../events", "Reason", []string{"reason"}},
		{"../../events", "BoundaryRule", []string{"outside", "reason"}},
		{"../../events", "RefusalReason", []string{"reason"}},
		{"../../events", "RefusedDocument", []string{"document"}},
		{"../../events", "EventKind", []string{"event_kind"}},
	}
	text := fixtureText(t)
	for _, enum := range enums {
		values := enumValues(t, enum.folder, enum.name)
		if len(values) == 0 {
			t.Errorf("%s has no values in %s", enum.name, enum.folder)
		}
		for _, value := range values {
			quoted := strconv.Quote(value)
			if value == "" {
				quoted = "null"
			}
			for _, member := range enum.members {
				if !strings.Contains(text, strconv.Quote(member)+":"+quoted) {
					t.Errorf("%s %q stands in no fixture as %q", enum.name, value, member)
				}
			}
		}
	}
}

// Commands and effects are types; their kind in a fixture is the name in snake case.
func TestEveryCommandAndEffectStandsInAFixture(t *testing.T) {
	text := fixtureText(t)
	for _, method := range []string{"commit", "effect"} {
		names := receiversOf(t, method)
		if len(names) < 4 {
			t.Errorf("only %v have the method %s", names, method)
		}
		for _, name := range names {
			if !strings.Contains(text, `"kind":"`+snake(name)+`"`) {
				t.Errorf("%s stands in no fixture as %q", name, snake(name))
			}
		}
	}
}

// fixtureText is all cases without white space; raw data is quoted within them and cannot match.
func fixtureText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range fixtureFiles(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, string(data)))
	}
	return all.String()
}

func parseFolder(t *testing.T, folder string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// enumValues gives the string constants that are declared with the type.
func enumValues(t *testing.T, folder, name string) []string {
	t.Helper()
	var values []string
	for _, file := range parseFolder(t, folder) {
		for _, decl := range file.Decls {
			consts, ok := decl.(*ast.GenDecl)
			if !ok || consts.Tok != token.CONST {
				continue
			}
			for _, spec := range consts.Specs {
				spec := spec.(*ast.ValueSpec)
				if declared, ok := spec.Type.(*ast.Ident); !ok || declared.Name != name {
					continue
				}
				for _, expr := range spec.Values {
					value, err := strconv.Unquote(expr.(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, value)
				}
			}
		}
	}
	return values
}

func receiversOf(t *testing.T, method string) []string {
	t.Helper()
	var names []string
	for _, file := range parseFolder(t, ".") {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == method {
				names = append(names, f.Recv.List[0].Type.(*ast.Ident).Name)
			}
		}
	}
	return names
}

func snake(name string) string {
	var out strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
