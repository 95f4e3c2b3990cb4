package test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// The reference is generated from the flags of the programs, and a test beside it holds it to them.
const reference = "../../../docs/settings.md"

// setting is a flag of a program that can be given as a variable.
type setting struct{ variable, byDefault string }

var settingRow = regexp.MustCompile("(?m)^\\| `--[a-z-]+` \\| `?([^|`]*)`? \\| `(AFTERWRITE_[A-Z_]+)` \\|")

// settingsOf are those of a program in the reference.
func settingsOf(t *testing.T, program string) []setting {
	t.Helper()
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "<!-- from: flags "+program+" -->")
	table, _, _ = strings.Cut(table, "<!-- end -->")
	var all []setting
	for _, row := range settingRow.FindAllStringSubmatch(table, -1) {
		all = append(all, setting{row[2], strings.TrimSpace(row[1])})
	}
	if !found || len(all) == 0 {
		t.Fatalf("%s has no settings of %s", reference, program)
	}
	return all
}

// elsewhere are settings that have a place of their own among the values: where the broker is and as whom to go there,
// files, and how long a stop takes, which the pod must know as well.
var elsewhere = map[string]bool{
	"AFTERWRITE_NATS_URL": true, "AFTERWRITE_NATS_CREDS": true, "AFTERWRITE_NATS_NKEY": true, "AFTERWRITE_NATS_CA": true,
	"AFTERWRITE_NATS_CERT": true, "AFTERWRITE_NATS_KEY": true, "AFTERWRITE_HOOKS": true, "AFTERWRITE_PROFILES": true,
	"AFTERWRITE_GRANTS": true, "AFTERWRITE_LISTEN": true, "AFTERWRITE_STOP_GRACE": true, "AFTERWRITE_DRAIN_TIMEOUT": true,
}

// own are the values that are not the program's default: a chart is for production.
var own = map[string]string{
	"AFTERWRITE_REPLICAS": "3",     // of the streams, on a broker of three
	"AFTERWRITE_LANES":    "2",     // and not one a core of the node, of which the container has a part
	"AFTERWRITE_DEBUG":    "false", // which a flag that is not given is
}

func TestEverySettingIsGivenAsTheReferenceSays(t *testing.T) {
	objects := render(t, values(t, example))
	programs := map[string][]setting{
		"dispatcher": settingsOf(t, "dispatcher"), "executor": settingsOf(t, "executor"),
		"provider": settingsOf(t, "provider-periodic-report"),
	}
	for _, d := range ofType[appsv1.Deployment](objects) {
		c := d.Spec.Template.Spec.Containers[0]
		given := map[string]bool{}
		for _, s := range programs[c.Name] {
			given[s.variable] = true
			holds(t, c, s)
		}
		for _, v := range c.Env {
			if strings.HasPrefix(v.Name, "AFTERWRITE_") && !given[v.Name] {
				t.Errorf("the %s is given %s, which the reference does not have", c.Name, v.Name)
			}
		}
		delete(programs, c.Name)
	}
	for name := range programs {
		t.Errorf("the example has no %s", name)
	}
	job := named[batchv1.Job](t, objects, "afterwrite-streams").Spec.Template.Spec.Containers[0]
	for _, s := range settingsOf(t, "dispatcher") {
		if variable(job, s.variable) != "" {
			holds(t, job, s)
		}
	}
}

// holds compares what a container is given with the default. One that is given nothing takes it by itself.
func holds(t *testing.T, c corev1.Container, s setting) {
	t.Helper()
	got := variable(c, s.variable)
	want, is := own[s.variable]
	if !is {
		want = s.byDefault
	}
	if got != "" && got != want && !elsewhere[s.variable] {
		t.Errorf("the %s is given %s=%q, the reference says %q", c.Name, s.variable, got, want)
	}
}

// The schema refuses what it does not know, so that it must know every setting of the dispatcher and of the streams.
func TestEverySettingOfTheDispatcherIsAValue(t *testing.T) {
	data, err := os.ReadFile("../values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	properties := func(path ...string) map[string]json.RawMessage {
		t.Helper()
		part := data
		var o object
		for _, name := range append(path, "") {
			o = object{}
			if err := json.Unmarshal(part, &o); err != nil {
				t.Fatal(err)
			}
			part = o.Properties[name]
		}
		return o.Properties
	}
	known := map[string]bool{}
	for _, list := range []map[string]json.RawMessage{properties("dispatcher", "settings"), properties("streams", "settings")} {
		for name := range list {
			known[variableOf(name)] = true
		}
	}
	for _, s := range settingsOf(t, "dispatcher") {
		if known[s.variable] == elsewhere[s.variable] {
			t.Errorf("%s has a place of its own: %t, and is a setting: %t", s.variable, elsewhere[s.variable], known[s.variable])
		}
		delete(known, s.variable)
	}
	for name := range known {
		t.Errorf("%s is a setting that the reference does not have", name)
	}
}

// variableOf is the variable of a value: receiptsAge is AFTERWRITE_RECEIPTS_AGE.
func variableOf(value string) string {
	var b strings.Builder
	b.WriteString("AFTERWRITE_")
	for _, r := range value {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
