package registry

import (
	"bytes"
	"errors"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"sigs.k8s.io/yaml"
)

const ruleMap = "must be a map of members"

func (f File) isJSON() bool { return path.Ext(f.Name) == ".json" }

// read decodes the whole file into v.
func (f File) read(v any) *Problem {
	value, problem := f.toJSON()
	if problem != nil {
		return problem
	}
	if value.Kind() != '{' {
		return &Problem{File: f.Name, Rule: ruleMap}
	}
	return f.decode(value, "", v)
}

// toJSON gives the JSON that the file is or stands for, not checked any further.
func (f File) toJSON() (jsontext.Value, *Problem) {
	if f.isJSON() {
		return f.Data, nil
	}
	if moreThanOneDocument(f.Data) {
		return nil, &Problem{File: f.Name, Rule: "must be one YAML document"}
	}
	value, err := yaml.YAMLToJSONStrict(f.Data)
	if err != nil {
		return nil, &Problem{File: f.Name, Rule: "must be YAML: " + yamlFault(err)}
	}
	if hasBooleanName(value) {
		return nil, &Problem{File: f.Name, Rule: "must quote a key that YAML reads as a boolean, such as on or yes; " +
			"write it as JSON if true or false is meant"}
	}
	return value, nil
}

// moreThanOneDocument finds what the YAML parser would pass over in silence: whatever follows the first document.
func moreThanOneDocument(data []byte) bool {
	content, closed := false, false
	for line := range bytes.Lines(data) {
		text := bytes.TrimSpace(line)
		switch begins, ends := isMarker(line, "---"), isMarker(line, "..."); {
		case begins && content:
			return true
		case begins, ends:
			closed, text = content, bytes.TrimSpace(line[len("---"):])
		}
		if len(text) == 0 || text[0] == '#' || text[0] == '%' && !content {
			continue
		}
		if closed {
			return true
		}
		content = true
	}
	return false
}

// isMarker reports whether the line begins or ends a document, which it does only from its first column on.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

var yamlNoise = regexp.MustCompile(`error converting YAML to JSON: |yaml: |unmarshal errors:`)

// yamlFault makes one line of what the parser says.
func yamlFault(err error) string {
	return strings.Join(strings.Fields(yamlNoise.ReplaceAllString(err.Error(), "")), " ")
}

// hasBooleanName finds the trace of a bare key such as on, which the parser turns into "true": a payload schema
// would then speak of another member than its author meant.
func hasBooleanName(value jsontext.Value) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return false
		}
		parent, length := dec.StackIndex(dec.StackDepth())
		if isName := parent == '{' && length%2 == 1 && tok.Kind() == '"'; isName {
			if s := tok.String(); s == "true" || s == "false" {
				return true
			}
		}
	}
}

// decode reads value, which stands at a field of the file, into v: no member twice and none that v does not have.
// A member that is absent keeps what v holds.
func (f File) decode(value jsontext.Value, at string, v any) *Problem {
	err := json.Unmarshal(value, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	problem := &Problem{File: f.Name, Field: at, Rule: "must be valid JSON"}
	semantic, syntactic := (*json.SemanticError)(nil), (*jsontext.SyntacticError)(nil)
	switch {
	case errors.As(err, &semantic):
		problem.Field = field(at, semantic.JSONPointer)
		problem.Rule = typeRule(semantic.GoType)
		if errors.Is(err, json.ErrUnknownName) {
			problem.Rule = "is not a member"
		}
	case errors.As(err, &syntactic):
		if errors.Is(err, jsontext.ErrDuplicateName) {
			problem.Field, problem.Rule = field(at, syntactic.JSONPointer), "stands twice"
		}
	}
	return problem
}

// typeRule says what a member of the Go type must be.
func typeRule(t reflect.Type) string {
	if t == reflect.TypeFor[duration]() {
		return "must be a duration such as 1s or 5m"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "must be true or false"
	case reflect.Int:
		return "must be an integer"
	case reflect.Slice:
		return "must be a list"
	case reflect.String:
		return "must be a string"
	default:
		return ruleMap
	}
}

func field(at string, pointer jsontext.Pointer) string {
	for token := range pointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			at += "[" + token + "]"
			continue
		}
		at = join(at, token)
	}
	return at
}

func join(at, member string) string {
	if at == "" {
		return member
	}
	return at + "." + member
}
