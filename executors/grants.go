package executors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"sigs.k8s.io/yaml"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// GrantsFile is an operator's file: who executes, by calling which services, and with what authority.
//
//	executor: report_evaluator
//	grants:
//	  - intent_kind: periodic_report.trigger_evaluation
//	    enabled: true            # by default; off grants are not pulled and their intents wait
//	    admission: automatic     # by default; manual wants a person to accept each intent
//	    write_scope: []          # all that an intent may be granted
//	    ceilings: {max_attempts: 3, max_result_bytes: 16384}
//	    accept: {max_attempts: 1, write_scope: []}   # accept less than an intent may ask for
//	    max_age: 24h             # by default any
//	    from: new                # where a new executor starts: new, all, or an RFC 3339 time
//	    concurrency: 16
//	    service: {name: periodic_report.evaluate_trigger, timeout: 10s}
//	    policy: {}               # given to the service as it is
//	    state_key: goal_id       # the payload member that keys the capability's state
//	    evaluated_at: observed_at   # the payload member that says for when to decide
type GrantsFile struct {
	Executor events.ExecutorID
	Grants   []Grant
}

// Admission is how a grants file says who admits.
const (
	admissionAutomatic = "automatic"
	admissionManual    = "manual"
)

// ParseGrants reads a grants file, in YAML or JSON. The error lists everything that is wrong with it, one clear
// sentence each; a member that the file does not know and one that stands twice are wrong.
func ParseGrants(data []byte) (*GrantsFile, error) {
	converted, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		faults := strings.Fields(yamlHeadings.Replace(err.Error()))
		return nil, fmt.Errorf("the grants file must be YAML without a repeated key: %s", strings.Join(faults, " "))
	}
	r := &reader{}
	top := r.object("", converted)
	file := &GrantsFile{Executor: top.text("executor", "")}
	for i, value := range top.list("grants") {
		at := fmt.Sprintf("grants[%d]", i)
		file.Grants = append(file.Grants, r.grant(r.object(at, value)).WithDefaults())
	}
	top.done()
	r.problems = append(r.problems, unjoin(Options{Executor: file.Executor, Grants: file.Grants}.WithDefaults().Validate())...)
	if err := errors.Join(r.problems...); err != nil {
		return nil, err
	}
	return file, nil
}

// yamlHeadings are what the library puts above the faults it found, a line each.
var yamlHeadings = strings.NewReplacer("error converting YAML to JSON: ", "", "yaml: ", "", "unmarshal errors:", "")

func (r *reader) grant(o *object) Grant {
	ceilings, accept, service := o.object("ceilings"), o.object("accept"), o.object("service")
	g := Grant{
		IntentKind:  o.text("intent_kind", ""),
		Off:         !o.flag("enabled", true),
		WriteScope:  o.texts("write_scope"),
		Ceilings:    ceilings.budget(),
		Narrow:      events.Allowance{Budget: accept.budget(), WriteScope: accept.texts("write_scope")},
		MaxAge:      o.duration("max_age"),
		From:        streams.Start(o.text("from", string(streams.StartNew))),
		Concurrency: o.number("concurrency"),
		Service:     service.text("name", ""),
		Timeout:     service.duration("timeout"),
		Policy:      o.take("policy"),
		StateKey:    o.text("state_key", ""),
		EvaluatedAt: o.text("evaluated_at", ""),
	}
	switch o.text("admission", admissionAutomatic) {
	case admissionAutomatic:
	case admissionManual:
		g.Manual = true
	default:
		r.bad(o.path("admission"), `must be "automatic" or "manual"`)
	}
	for _, part := range []*object{ceilings, accept, service, o} {
		part.done()
	}
	return g
}

// reader collects what is wrong with a file while it is read.
type reader struct{ problems []error }

func (r *reader) bad(field, rule string) {
	if field == "" {
		field = "the grants file"
	}
	r.problems = append(r.problems, fmt.Errorf("%s %s", field, rule))
}

// object is a part of the file. What nobody took of it is unknown.
type object struct {
	*reader
	at      string
	members map[string]jsontext.Value
}

func (r *reader) object(at string, value jsontext.Value) *object {
	o := &object{reader: r, at: at}
	if value.Kind() != '{' || json.Unmarshal(value, &o.members) != nil {
		r.bad(at, "must be a mapping")
	}
	return o
}

func (o *object) path(member string) string {
	if o.at == "" {
		return member
	}
	return o.at + "." + member
}

func (o *object) take(member string) jsontext.Value {
	value := o.members[member]
	delete(o.members, member)
	return value
}

func (o *object) done() {
	for _, member := range slices.Sorted(maps.Keys(o.members)) {
		o.bad(o.path(member), "is not known")
	}
}

// read takes a member of the kind into v, and leaves v as it is where there is none.
func (o *object) read(member, rule string, v any) {
	if value := o.take(member); value != nil && (value.Kind() == 'n' || json.Unmarshal(value, v) != nil) {
		o.bad(o.path(member), rule)
	}
}

func (o *object) object(member string) *object {
	if value := o.take(member); value != nil {
		return o.reader.object(o.path(member), value)
	}
	return &object{reader: o.reader, at: o.path(member)}
}

func (o *object) text(member, otherwise string) string {
	o.read(member, "must be a string", &otherwise)
	return otherwise
}

func (o *object) flag(member string, otherwise bool) bool {
	o.read(member, "must be true or false", &otherwise)
	return otherwise
}

func (o *object) number(member string) (n int) {
	o.read(member, "must be a whole number", &n)
	return n
}

func (o *object) texts(member string) (list []string) {
	o.read(member, "must be a list of strings", &list)
	return list
}

func (o *object) list(member string) (list []jsontext.Value) {
	o.read(member, "must be a list", &list)
	return list
}

func (o *object) duration(member string) time.Duration {
	var written string
	o.read(member, "must be a duration, as in 10s", &written)
	d, err := time.ParseDuration(written)
	if written != "" && err != nil {
		o.bad(o.path(member), "must be a duration, as in 10s")
	}
	return d
}

func (o *object) budget() events.IntentBudget {
	return events.IntentBudget{MaxAttempts: o.number("max_attempts"), MaxResultBytes: o.number("max_result_bytes")}
}
