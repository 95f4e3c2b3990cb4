package core_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/core"
)

// The fresh path of one dispatch, that of the second golden vector: admitted, begun, decided as proposed.
func BenchmarkCommitFresh(b *testing.B) {
	g := readGiven(b)
	state := core.State{Installed: g.installed(b, "longhorizon", plain)}
	commands := map[string]core.Command{
		"admit":  caseCommand(b, g, "testdata/admit.json", "golden vector evt_lh_002_fixture_scope_narrowed"),
		"decide": caseCommand(b, g, "testdata/decide.json", "golden vector evt_lh_002_fixture_scope_narrowed is proposed"),
	}
	commands["begin"] = core.BeginDispatch{
		Dispatch: g.dispatch(b, jsontext.Value(`"golden_lh_002"`)), Fresh: true, Deliveries: 1,
		Now: commands["admit"].(core.AdmitReceipt).Now,
	}
	for _, name := range []string{"admit", "begin", "decide"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := core.Commit(commands[name], state, core.System)
				if err != nil || len(r.Plan)+len(r.After(r.Save.Stored())) == 0 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
		})
	}
}

func caseCommand(b *testing.B, g *given, file, name string) core.Command {
	b.Helper()
	for _, c := range readFixtures(b, file) {
		if c.Name == name {
			return g.command(b, c.Command, plain)
		}
	}
	b.Fatalf("%s has no case %q", file, name)
	return nil
}
