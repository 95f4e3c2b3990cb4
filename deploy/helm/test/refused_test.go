package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A file of refused values says in its first lines what the refusal must name.
var wanted = regexp.MustCompile(`(?m)^# want: (.+)$`)

func TestBadValuesAreRefusedWithTheirPlaceAndTheRule(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no refused values: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			v := values(t, minimal, file)
			if filepath.Base(file) == "nothing_installed.yaml" {
				v = map[string]any{}
			}
			_, err = templates(t, v)
			if err == nil {
				t.Fatal("the values are taken")
			}
			for _, want := range wanted.FindAllSubmatch(data, -1) {
				if !strings.Contains(err.Error(), string(want[1])) {
					t.Errorf("the refusal does not say %q:\n%v", want[1], err)
				}
			}
		})
	}
}
