package events_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"

	"github.com/afterwrite/afterwrite/events"
)

// FuzzDecode: whatever the bytes, a document decodes or is refused by a DecodeError; what decodes encodes to the
// canonical form of the bytes, and decodes again to itself.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*.json", "testdata/invalid/*/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			f.Add(readFile(f, file))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range kinds {
			doc, encoded, err := k.recode(data)
			// No canonical form begins with a blank, so this goes the long way.
			if spaced, _, long := k.recode(append([]byte{' '}, data...)); !reflect.DeepEqual(doc, spaced) || fmt.Sprint(err) != fmt.Sprint(long) {
				t.Errorf("%s: read as canonical it is %+v, %v, and otherwise %+v, %v", k.name, doc, err, spaced, long)
			}
			if err != nil {
				if _, ok := errors.AsType[*events.DecodeError](err); !ok {
					t.Errorf("%s: %v is no DecodeError", k.name, err)
				}
				continue
			}
			if canonical, err := jcs.Transform(data); err != nil || !bytes.Equal(canonical, encoded) {
				t.Errorf("%s encodes to %s, its canonical form is %s, %v", k.name, encoded, canonical, err)
			}
			again, _, err := k.recode(encoded)
			if err != nil {
				t.Fatalf("%s: what was encoded does not decode: %v", k.name, err)
			}
			if !reflect.DeepEqual(doc, again) {
				t.Errorf("%s (-first +second):\n%s", k.name, cmp.Diff(doc, again))
			}
		}
	})
}

// FuzzCanonicalize: what has a canonical form has that of the other library, and keeps it.
func FuzzCanonicalize(f *testing.F) {
	for _, seed := range []string{`{"b":[1,-2,{}],"a":"\u20ac\ud83d\ude00"}`, `[9007199254740991,"",null]`, `{"a":1,"a":1}`, `1.0`, `"\ud800"`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := events.Canonicalize(data)
		if err != nil {
			if _, ok := errors.AsType[*events.DecodeError](err); !ok {
				t.Errorf("%v is no DecodeError", err)
			}
			return
		}
		want, err := jcs.Transform([]byte("[" + string(data) + "]"))
		if err != nil || string(want) != "["+string(got)+"]" {
			t.Errorf("the canonical form of %q is %q, another library says %q, %v", data, got, want, err)
		}
		if again, err := events.Canonicalize(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("canonicalizing %q again gives %q, %v", got, again, err)
		}
	})
}

// FuzzBoundary: any string is judged, the same alone and within JSON, and what passes as an id is one.
func FuzzBoundary(f *testing.F) {
	for _, seed := range []string{
		"token_bucket_rev", "https://x", "C:\\x", "~/x", "a@b.cd", "Bearer abcdef0123", "password = x", "-----BEGIN", "two words", "eyJ.eyJ.",
		"sk-0123456789abcdef0123", "\xff", "修复登录页面", "a:b:c=d@e/f\\g~h$i%j-k",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rule := events.Scan(s)
		if rule != "" && !slices.Contains(events.BoundaryRules(), rule) {
			t.Errorf("Scan(%q) gives the unknown rule %q", s, rule)
		}
		if utf8.ValidString(s) {
			quoted, err := jsontext.AppendQuote(nil, s)
			if err != nil {
				t.Fatal(err)
			}
			if got := events.ScanJSON(quoted); got != rule {
				t.Errorf("%q breaks %q alone and %q within JSON", s, rule, got)
			}
		}
		in := events.HookInput{Projection: &events.Projection{Transition: events.ReplanEntered, FactRefs: []string{s}}}
		if got := in.CheckBoundary(); (got == "") != (rule == "" && events.IsOpaqueID(s)) {
			t.Errorf("the fact %q gives %q; scanned alone it gives %q", s, got, rule)
		}
		for _, around := range []string{s + " https://example.test", "https://example.test " + s} {
			if events.Scan(around) != events.BoundaryURL {
				t.Errorf("%q hides the URL beside it", s)
			}
		}
	})
}

// FuzzReadEvent: any message is read or refused by a DecodeError, in both modes, and an envelope that was read travels
// unchanged.
func FuzzReadEvent(f *testing.F) {
	f.Add("", "receipt_a", "afterwrite/dispatcher", "io.afterwrite.receipt.v0", []byte(`{}`))
	f.Add("application/cloudevents+json", "", "", "", structured(nil))
	f.Add("application/cloudevents+json", "", "", "", structured(map[string]string{"data_base64": `"e30="`, "data": ""}))
	f.Add("application/json", "%E2%82%AC", `"a b"`, "%", []byte(`{}`))
	f.Fuzz(func(t *testing.T, contentType, id, source, eventType string, payload []byte) {
		h := events.Header{
			"Content-Type": {contentType}, "ce-specversion": {"1.0"}, "Ce-Id": {id}, "ce-source": {source}, "ce-type": {eventType},
		}
		e, _, err := events.ReadEvent(h, payload)
		if err != nil {
			if _, ok := errors.AsType[*events.DecodeError](err); !ok {
				t.Errorf("%v is no DecodeError", err)
			}
			return
		}
		again, data, err := events.ReadEvent(e.Header(), payload)
		if err != nil {
			t.Fatalf("%+v does not travel: %v", e, err)
		}
		if diff := cmp.Diff(e, again); diff != "" || !bytes.Equal(data, payload) {
			t.Errorf("envelope (-sent +got):\n%s", diff)
		}
	})
}

// FuzzPayloadSchema: any schema and payload are judged without a panic, and its shape accepts no payload that the library
// does not.
func FuzzPayloadSchema(f *testing.F) {
	f.Add([]byte(chainPayloadSchema), []byte(`{"goal_id":"g"}`))
	f.Add([]byte(`{"$ref":"#"}`), []byte(`1`))
	f.Add([]byte(`{"properties":{"a":{"items":{"$ref":"#"}}},"required":["a"],"additionalProperties":{"const":"b"}}`), []byte(`{"a":[{"a":[]}],"c":"b"}`))
	f.Add([]byte(`{"enum":[1,"a",null],"minimum":1,"maxLength":1,"format":"date-time","pattern":"."}`), []byte(`1`))
	f.Fuzz(func(t *testing.T, schema, payload []byte) {
		compiled, err := events.CompilePayloadSchema("a.kind", schema)
		if err != nil {
			return
		}
		if _, accepted, library := compiled.Judges(payload); accepted && library != nil {
			t.Errorf("the shape of %q accepts %q, and the library says: %v", schema, payload, library)
		}
		if err := compiled.Check(payload); err != nil {
			if _, ok := errors.AsType[*events.PayloadError](err); !ok {
				t.Errorf("%v is no PayloadError", err)
			}
		}
	})
}
