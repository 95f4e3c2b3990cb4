package events_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

type report struct {
	Count int             `json:"count"`
	Note  events.Optional `json:"note"`
	Parts []part          `json:"parts"`
}

type part struct {
	Ref string `json:"ref"`
}

func TestDecodeValueReadsADocumentOfACapability(t *testing.T) {
	got, err := events.DecodeValue[report]([]byte(`{"parts":[{"ref":"a"}],"note":null,"count":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&report{Count: 3, Parts: []part{{Ref: "a"}}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeValueIsStrict(t *testing.T) {
	for name, tc := range map[string]struct {
		data  string
		fault events.Fault
	}{
		"unknown member":   {`{"count":1,"note":null,"parts":[],"more":1}`, events.FaultUnknownMember},
		"missing member":   {`{"count":1,"note":null}`, events.FaultMissingMember},
		"duplicate member": {`{"count":1,"count":1,"note":null,"parts":[]}`, events.FaultDuplicateMember},
		"fraction":         {`{"count":1.0,"note":null,"parts":[]}`, events.FaultNumber},
		"null array":       {`{"count":1,"note":null,"parts":null}`, events.FaultWrongType},
		"wrong type":       {`{"count":"1","note":null,"parts":[]}`, events.FaultWrongType},
		"two values":       {`{"count":1,"note":null,"parts":[]}{}`, events.FaultSyntax},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := events.DecodeValue[report]([]byte(tc.data))
			refused := (*events.DecodeError)(nil)
			if !errors.As(err, &refused) || refused.Fault != tc.fault {
				t.Errorf("got %v, want fault %s", err, tc.fault)
			}
		})
	}
}

func TestEncodeValueWritesCanonicalForm(t *testing.T) {
	got, err := events.EncodeValue(map[string]any{"b": []int{2, 1}, "a": "x", "é": nil})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":"x","b":[2,1],"é":null}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEncodeValueKeepsTheContractsLimits(t *testing.T) {
	if _, err := events.EncodeValue(map[string]any{"ratio": 0.5}); err == nil {
		t.Error("a fraction was encoded")
	}
}

func TestIsTimestamp(t *testing.T) {
	for s, want := range map[string]bool{
		"2026-06-23T17:13:00Z":        true,
		"2026-06-23T19:13:00.5+02:00": true,
		"2026-06-23T17:13:00":         false,
		"2026-06-23":                  false,
		"2026-06-23T17:13:00,5Z":      false,
		"":                            false,
	} {
		if got := events.IsTimestamp(s); got != want {
			t.Errorf("IsTimestamp(%q) = %v", s, got)
		}
	}
}
