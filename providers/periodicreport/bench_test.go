package periodicreport_test

import (
	"testing"

	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

func BenchmarkHook(b *testing.B) {
	in := inputs(b)["evt_lh_005_minimal_fixture_validated"]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := periodicreport.Hook(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvaluate(b *testing.B) {
	ex := examples(b)[2]
	request := evaluation(b, ex.Request.EvaluatedAt, ex.Request.Policy, ex.Request.State, ex.Request.IntentsPayloads...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := periodicreport.Evaluate(request); err != nil {
			b.Fatal(err)
		}
	}
}
