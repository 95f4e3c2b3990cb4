package test

import (
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

func TestHelmHasNothingToSayAgainstTheChart(t *testing.T) {
	for _, message := range lint.RunAll(chartDir, values(t, full), namespace).Messages {
		// It recommends an icon.
		if message.Severity > support.InfoSev {
			t.Error(message.Error())
		}
	}
}
