package events_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
)

// Encoding sorts nothing at run time, so the fields must stand as RFC 8785 sorts the members: by UTF-16 code units.
func TestFieldsStandInCanonicalOrder(t *testing.T) {
	for _, doc := range []any{
		events.Receipt{}, events.Registration{}, events.HookInput{}, events.HookResult{}, events.Intent{},
		events.DispatchReceipt{}, events.Refusal{}, events.Conflict{}, events.Execution{}, events.ServiceRequest{},
		events.ServiceResponse{},
	} {
		checkFieldOrder(t, reflect.TypeOf(doc), map[reflect.Type]bool{})
	}
}

func checkFieldOrder(t *testing.T, doc reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	for doc.Kind() == reflect.Pointer || doc.Kind() == reflect.Slice {
		doc = doc.Elem()
	}
	if doc.Kind() != reflect.Struct || seen[doc] {
		return
	}
	seen[doc] = true
	var before []uint16
	for i := range doc.NumField() {
		name := doc.Field(i).Tag.Get("json")
		units := utf16.Encode([]rune(name))
		if i > 0 && reflect.DeepEqual(before, units) || string(utf16.Decode(before)) > name {
			t.Errorf("%s: member %s stands after %s", doc, name, string(utf16.Decode(before)))
		}
		before = units
		checkFieldOrder(t, doc.Field(i).Type, seen)
	}
}

// anyJSON draws JSON text within the contract's limits, spelled in any way that JSON allows.
func anyJSON(depth int) *rapid.Generator[string] {
	blank := rapid.SampledFrom([]string{"", " ", "\n\t", "\r\n"})
	spaced := func(t *rapid.T, s string) string { return blank.Draw(t, "before") + s + blank.Draw(t, "after") }
	str := rapid.Custom(func(t *rapid.T) string { return spellString(t, rapid.String().Draw(t, "text")) })
	leaf := rapid.Custom(func(t *rapid.T) string {
		return spaced(t, rapid.OneOf(
			rapid.SampledFrom([]string{"null", "true", "false", "0", "-1", "9007199254740991", "-9007199254740991"}),
			rapid.Map(rapid.Int64Range(-1<<53+1, 1<<53-1), func(n int64) string { return string(jsonOf(n)) }),
			str,
		).Draw(t, "leaf"))
	})
	if depth == 0 {
		return leaf
	}
	array := rapid.Custom(func(t *rapid.T) string {
		elements := rapid.SliceOfN(anyJSON(depth-1), 0, 4).Draw(t, "elements")
		return spaced(t, "["+strings.Join(elements, ",")+"]")
	})
	object := rapid.Custom(func(t *rapid.T) string {
		var members []string
		for _, name := range rapid.SliceOfNDistinct(rapid.String(), 0, 5, rapid.ID[string]).Draw(t, "names") {
			members = append(members, spaced(t, spellString(t, name))+":"+anyJSON(depth-1).Draw(t, "value"))
		}
		return spaced(t, "{"+strings.Join(members, ",")+"}")
	})
	return rapid.OneOf(leaf, array, object)
}

func jsonOf(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// spellString writes s as a JSON string, some of its characters escaped without need.
func spellString(t *rapid.T, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || rapid.IntRange(0, 7).Draw(t, "escape") == 0:
			for _, unit := range utf16.Encode([]rune{r}) {
				b.WriteString(`\u`)
				const digits = "0123456789abcdef"
				for shift := 12; shift >= 0; shift -= 4 {
					b.WriteByte(digits[unit>>shift&15])
				}
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func TestCanonicalFormIsThatOfAnotherLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := anyJSON(3).Draw(t, "json")
		got, err := events.Canonicalize([]byte(data))
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		// The other library takes no scalar at the top.
		want, err := jcs.Transform([]byte("[" + data + "]"))
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(string(want), "["+string(got)+"]"); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", data, diff)
		}
		again, err := events.Canonicalize(got)
		if err != nil || string(again) != string(got) {
			t.Fatalf("the canonical form of %s is %s, %v", got, again, err)
		}
	})
}

// The example of RFC 8785, section 3.2.3, without its numbers that are no plain integers.
func TestCanonicalFormOfTheStandardsExample(t *testing.T) {
	got, err := events.Canonicalize([]byte(
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("canonical form (-want +got):\n%s", diff)
	}
}

func TestCanonicalFormKeepsTheLimits(t *testing.T) {
	for _, tc := range []struct {
		name, data string
		fault      events.Fault
	}{
		{"32 levels", strings.Repeat("[", 32) + strings.Repeat("]", 32), ""},
		{"33 levels", strings.Repeat("[", 33) + strings.Repeat("]", 33), events.FaultTooDeep},
		{"a million levels", strings.Repeat(`{"a":`, 1e6), events.FaultTooDeep},
		{"side by side", "[" + strings.Repeat("[[]],", 100) + "0]", ""},
		{"the largest integer", "9007199254740991", ""},
		{"one more", "9007199254740992", events.FaultNumber},
		{"the least integer", "-9007199254740991", ""},
		{"one less", "-9007199254740992", events.FaultNumber},
		{"negative zero", "-0", events.FaultNumber},
		{"a fraction", "1.0", events.FaultNumber},
		{"an exponent", "1e3", events.FaultNumber},
		{"a long number", strings.Repeat("9", 400), events.FaultNumber},
		{"a number in a string", `"1e3"`, ""},
		{"a duplicate", `{"a":1,"b":2,"a":1}`, events.FaultDuplicateMember},
		{"a byte order mark", "\xef\xbb\xbf{}", events.FaultSyntax},
		{"invalid UTF-8", "\"\xff\"", events.FaultEncoding},
		{"a lone surrogate", `"\ud800"`, events.FaultEncoding},
		{"two values", "1 2", events.FaultSyntax},
		{"nothing", " ", events.FaultSyntax},
		{"an open string", `"a`, events.FaultSyntax},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := events.Canonicalize([]byte(tc.data))
			if tc.fault == "" && err != nil || tc.fault != "" && !isFault(err, tc.fault, "") {
				t.Errorf("got %v, want fault %q", err, tc.fault)
			}
		})
	}
}

func TestADecodedDocumentDoesNotChangeWithTheBytesItWasReadFrom(t *testing.T) {
	data := readFile(t, "testdata/valid/intent-of_any_payload.json")
	intent, err := events.Decode[events.Intent](data)
	if err != nil {
		t.Fatal(err)
	}
	before, err := events.Encode(intent)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 'x'
	}
	after, err := events.Encode(intent)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("the document changed:\n%s", diff)
	}
}
