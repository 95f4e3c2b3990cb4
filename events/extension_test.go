package events_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

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

// upper writes itself, by a method of the kind that its name says.
type (
	upperText     string
	upperAppended string
	upperJSON     struct {
		A string `json:"a"`
	}
	upperEncoded struct {
		A string `json:"a"`
	}
	branch struct {
		Branches []branch `json:"branches"`
		Next     *branch  `json:"next"`
	}
)

func (u upperText) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(string(u))), nil }
func (u *upperAppended) AppendText(b []byte) ([]byte, error) {
	return append(b, strings.ToUpper(string(*u))...), nil
}
func (u *upperJSON) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(u.A)) }
func (u upperEncoded) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteToken(jsontext.String(strings.ToUpper(u.A)))
}

// anyType draws a type, of those that EncodeValue writes itself and of those that it may not.
func anyType(depth int) *rapid.Generator[reflect.Type] {
	leaf := rapid.SampledFrom([]reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[events.Timestamp](), reflect.TypeFor[events.Optional](),
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int64](), reflect.TypeFor[jsontext.Value](),
		reflect.TypeFor[uint8](), reflect.TypeFor[float64](), reflect.TypeFor[any](), reflect.TypeFor[struct{}](),
		reflect.TypeFor[map[string]int](), reflect.TypeFor[[2]int](), reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](),
		reflect.TypeFor[upperText](), reflect.TypeFor[upperAppended](), reflect.TypeFor[upperJSON](),
		reflect.TypeFor[upperEncoded](), reflect.TypeFor[branch](), reflect.TypeFor[events.Intent](),
	})
	if depth == 0 {
		return leaf
	}
	inner := anyType(depth - 1)
	slice := rapid.Map(inner, reflect.SliceOf)
	pointer := rapid.Map(inner, reflect.PointerTo)
	return rapid.OneOf(leaf, slice, pointer, anyStruct(inner), anyStruct(inner))
}

// anyStruct draws a struct of any tags, half of them with no tag but plain names in order.
func anyStruct(fields *rapid.Generator[reflect.Type]) *rapid.Generator[reflect.Type] {
	return rapid.Custom(func(t *rapid.T) reflect.Type {
		orderly := rapid.Bool().Draw(t, "orderly")
		var all []reflect.StructField
		for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
			name := string(rune('a' + i))
			if !orderly {
				name = rapid.SampledFrom([]string{
					"", "-", "a", "B", "é", "'x y'", "a,omitempty", "b,omitzero", "c,string", "d,case:ignore", "e,inline",
				}).Draw(t, "name")
			}
			all = append(all, reflect.StructField{
				Name: string(rune('A' + i)), Type: fields.Draw(t, "type"), Tag: reflect.StructTag(`json:"` + name + `"`),
			})
		}
		return reflect.StructOf(all)
	})
}

// fill draws what v holds.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "a", "plain_text", "\"quoted\"\\\n", "é\u2028", "😀", "\xff"}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "flag"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.SampledFrom([]int64{0, 1, -1, 1<<53 - 1, 1 << 53, -1<<53 + 1, -1 << 53}).Draw(t, "number"))
	case reflect.Float64:
		v.SetFloat(rapid.SampledFrom([]float64{0, 1, 0.5}).Draw(t, "float"))
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(t, field)
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[jsontext.Value]() {
			v.SetBytes(rapid.SampledFrom([][]byte{
				nil, {}, []byte(`{"b":1,"a":[]}`), []byte(`{"a":"b"}`), []byte(` [1 , 2]`), []byte(`{"a":1,"a":1}`), []byte(`{`),
				[]byte(`0.5`), []byte(`"\u0041"`), []byte(strings.Repeat("[", 31) + strings.Repeat("]", 31)),
			}).Draw(t, "json"))
			return
		}
		n := rapid.IntRange(0, 2).Draw(t, "elements")
		if n > 0 && v.Type() != reflect.TypeFor[[]branch]() {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	}
}

func TestEncodeValueWritesAValueOfAnyTypeAsOtherLibrariesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := reflect.New(anyStruct(anyType(2)).Draw(t, "type"))
		fill(t, v.Elem())
		value := v.Interface()
		if rapid.Bool().Draw(t, "by value") {
			value = v.Elem().Interface()
		}
		got, failed := events.EncodeValue(value)

		text, err := json.Marshal(value, json.Deterministic(true))
		if err != nil {
			if failed == nil {
				t.Fatalf("%T was encoded as %s: %v", value, got, err)
			}
			return
		}
		if _, err := events.Canonicalize(text); err != nil {
			if failed == nil || failed.Error() != err.Error() {
				t.Fatalf("%T %s gave %s %v, want %v", value, text, got, failed, err)
			}
			return
		}
		want, err := jcs.Transform(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" || failed != nil {
			t.Fatalf("%T: %v (-want +got):\n%s", value, failed, diff)
		}
	})
}

// The same payload as a struct, its fields in canonical order, and as a map.
func BenchmarkEncodeValue(b *testing.B) {
	shaped := struct {
		AgentID         string           `json:"agent_id"`
		GoalID          string           `json:"goal_id"`
		ObservedAt      events.Timestamp `json:"observed_at"`
		SourceEventRefs []string         `json:"source_event_refs"`
		Transition      string           `json:"transition"`
	}{"codex-product-capability", "public-long-horizon-loop", "2026-06-23T17:13:00Z", []string{"fact_a", "fact_b"}, "replan_entered"}
	free := map[string]any{
		"agent_id": shaped.AgentID, "goal_id": shaped.GoalID, "observed_at": shaped.ObservedAt,
		"source_event_refs": shaped.SourceEventRefs, "transition": shaped.Transition,
	}
	for name, payload := range map[string]any{"struct": shaped, "map": free} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := events.EncodeValue(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// tree holds itself without a struct in between.
type tree []tree

func TestWhatHasNoShapeIsWrittenByTheLibrary(t *testing.T) {
	for want, v := range map[string]any{
		`{"t":[[],[[]]]}`: struct {
			T tree `json:"t"`
		}{tree{{}, {{}}}},
		`{"e":{}}`: struct {
			E struct{} `json:"e"`
		}{},
	} {
		if got, err := events.EncodeValue(v); err != nil || string(got) != want {
			t.Errorf("%T encodes to %s, %v; want %s", v, got, err, want)
		}
	}
}

func TestAnObjectOfNoMembersHasBothBraces(t *testing.T) {
	type of struct {
		A struct{} `json:"a"`
	}
	for _, bad := range []string{`{"a":}}`, `{"a":{}`, `{"a":{}}}`, `{"a":{"b":1}}`} {
		if v, err := events.DecodeValue[of]([]byte(bad)); err == nil {
			t.Errorf("%s is read as %v", bad, v)
		}
	}
	if _, err := events.DecodeValue[of]([]byte(`{"a":{}}`)); err != nil {
		t.Error(err)
	}
}
