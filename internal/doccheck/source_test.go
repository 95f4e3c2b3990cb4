package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

func parse(t *testing.T, name string) (*token.FileSet, *ast.File) {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return positions, file
}

// mostLines is how long an example on a page may be, what it prints not counted.
const mostLines = 40

// quote gives a function of a file, with its comment.
func quote(t *testing.T, args []string) string {
	name, function := args[0], args[1]
	positions, file := parse(t, name)
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		line := func(at token.Pos) int { return positions.Position(at).Line }
		lines := strings.SplitAfter(read(t, name), "\n")
		body := strings.Join(lines[line(f.Pos())-1:line(f.End())], "")
		does, _, _ := strings.Cut(body, "\t// Output:\n")
		if long := strings.Count(does, "\n"); long >= mostLines {
			t.Errorf("%s: %s has %d lines, and what a page quotes has under %d", name, function, long, mostLines)
		}
		return "```go\n" + strings.Join(lines[line(f.Doc.Pos())-1:line(f.Pos())-1], "") + body + "```\n"
	}
	t.Fatalf("%s has no function %s", name, function)
	return ""
}

// docLink is a name in a comment that leads to its declaration.
var docLink = regexp.MustCompile(`\[(\w+)\]`)

// A value is one constant of a closed type.
type value struct{ name, text, meaning string }

// closedTypes gives the string constants of a file by the name of their type.
func closedTypes(t *testing.T, name string) map[string][]value {
	_, file := parse(t, name)
	types := map[string][]value{}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			of, typed := constant.Type.(*ast.Ident)
			if !typed || len(constant.Values) != 1 {
				continue
			}
			literal, ok := constant.Values[0].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			v := value{name: constant.Names[0].Name, text: text}
			doc := strings.Join(strings.Fields(constant.Doc.Text()), " ")
			meaning, documented := strings.CutPrefix(doc, v.name+": ")
			if !documented {
				t.Errorf("%s: %s has no comment of the form %q", name, v.name, v.name+": what it means.")
			}
			meaning = docLink.ReplaceAllString(meaning, "`$1`")
			v.meaning = strings.ToUpper(meaning[:min(1, len(meaning))]) + meaning[min(1, len(meaning)):]
			types[of.Name] = append(types[of.Name], v)
		}
	}
	return types
}

// values gives the table of a closed type.
func values(t *testing.T, args []string) string {
	var rows [][]string
	for _, v := range closedTypes(t, args[0])[args[1]] {
		rows = append(rows, []string{code(v.text), v.meaning})
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no closed type %s", args[0], args[1])
	}
	return table([]string{"value", "meaning"}, rows)
}

// reasons gives the reasons of dispatch receipts, in the order of the contract's constants.
func reasons(t *testing.T, _ []string) string {
	types := closedTypes(t, "events/codes.go")
	codes := append([]value{{}}, types["Code"]...)
	var rows [][]string
	for _, status := range types["Status"] {
		for _, c := range codes {
			allowed := events.Reasons(events.Status(status.text), events.Code(c.text))
			if len(allowed) == 0 {
				continue
			}
			texts := make([]string, len(allowed))
			for i, reason := range allowed {
				texts[i] = code(string(reason))
			}
			rows = append(rows, []string{code(status.text), code(c.text), strings.Join(texts, " ")})
		}
	}
	return table([]string{"status", "code", "reasons"}, rows)
}

// The README shows how a hook is installed and a grant given. Beside the hook that is shipped, that is all there is to it.
func TestTheFilesThatTheREADMEShowsWouldRun(t *testing.T) {
	files := registry.Files{Hooks: []registry.File{{Name: "periodic_report.json", Data: periodicreport.HookFile}}}
	for _, shown := range yamlBlock.FindAllStringSubmatch(read(t, "README.md"), -1) {
		file := registry.File{Name: shown[1], Data: []byte(shown[2])}
		switch {
		case strings.HasPrefix(file.Name, "hooks/"):
			files.Hooks = append(files.Hooks, file)
		case file.Name == "profiles.yaml":
			files.Profiles = file
		default:
			if _, err := executors.ParseGrants(file.Data); err != nil {
				t.Errorf("%s: %v", file.Name, err)
			}
		}
	}
	report := registry.Check(files)
	if len(report.Hooks) != 2 || len(report.Profiles) != 1 || !report.Clean() {
		t.Errorf("the files are not clean: %+v", report)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```")

// untold are closed types that are no part of a document.
var untold = []string{"Fault"}

func TestTheContractTellsEveryValueOfEveryClosedType(t *testing.T) {
	page := read(t, "docs/contract.md")
	files, err := filepath.Glob(filepath.Join(root, "events", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		name := "events/" + filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for of := range closedTypes(t, name) {
			found++
			if marker := "<!-- from: values " + name + " " + of + " -->"; !slices.Contains(untold, of) && !strings.Contains(page, marker) {
				t.Errorf("docs/contract.md does not tell the values of %s: it has no %q", of, marker)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d closed types in the contract, which has more", found)
	}
}

func TestTheContractNamesEveryDocument(t *testing.T) {
	page := read(t, "docs/contract.md")
	for _, version := range events.SchemaVersions() {
		if !strings.Contains(page, "../events/schemas/"+version+".json") {
			t.Errorf("docs/contract.md does not link the schema of %s", version)
		}
		if kind := events.EventType(version); kind != "" && !strings.Contains(page, code(kind)) {
			t.Errorf("docs/contract.md does not name the event type %s", kind)
		}
	}
}
