package events_test

import (
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
)

const eventTime = events.Timestamp("2026-10-01T08:00:01.25Z")

func anEnvelope() events.Envelope {
	e := events.NewEnvelope("receipt_a", "afterwrite/dispatcher", events.ReceiptSchema, eventTime)
	e.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	e.TraceState = "vendor=a,other=b"
	return e
}

func TestAnEnvelopeTravelsInHeadersAsTheNATSBindingSays(t *testing.T) {
	want := events.Header{
		"ce-specversion":     {"1.0"},
		"ce-id":              {"receipt_a"},
		"ce-source":          {"afterwrite/dispatcher"},
		"ce-type":            {"io.afterwrite.receipt.v0"},
		"ce-time":            {"2026-10-01T08:00:01.25Z"},
		"ce-datacontenttype": {"application/json"},
		"ce-dataschema":      {"urn:afterwrite:schema:loopx_post_writeback_receipt_v0"},
		"ce-traceparent":     {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		"ce-tracestate":      {"vendor=a,other=b"},
	}
	if diff := cmp.Diff(want, anEnvelope().Header()); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestEveryDocumentHasATypeOfItsOwn(t *testing.T) {
	for _, k := range kinds {
		if got, want := events.EventType(k.schemaVersion), "io.afterwrite."+k.name+".v0"; got != want {
			t.Errorf("type of %s is %q, want %q", k.schemaVersion, got, want)
		}
	}
	if got := events.EventType(events.ExecutionSchema); got != "io.afterwrite.execution.v0" {
		t.Errorf("type of an execution is %q", got)
	}
	if got := events.EventType(events.ProjectionSchema); got != "" {
		t.Errorf("a projection travels in other documents only, and has the type %q", got)
	}
}

// The first is the example of the specification.
func TestHeaderValuesArePercentEncoded(t *testing.T) {
	for value, want := range map[string]string{
		"Euro € 😀":                 "Euro%20%E2%82%AC%20%F0%9F%98%80",
		`say "50%"`:                "say%20%2250%25%22",
		"plain:/?#[]@!$&'()*+,;=~": "plain:/?#[]@!$&'()*+,;=~",
		"a\tb\x7f":                 "a%09b%7F",
	} {
		e := anEnvelope()
		e.ID = value
		if got := e.Header()["ce-id"][0]; got != want {
			t.Errorf("%q travels as %q, want %q", value, got, want)
		}
	}
}

func TestHeaderValuesAreReadAsTheSpecificationSays(t *testing.T) {
	for sent, want := range map[string]string{
		"Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀",
		"%e2%82%ac":                       "€",
		"%41%42":                          "AB",
		"%2541":                           "%41",
		"  padded\t":                      "padded",
		"two words":                       "two words",
		`"quoted \"value\" \\ %41"`:       `quoted "value" \ A`,
		`a"b c"d`:                         "ab cd",
		"C+D":                             "C+D",
	} {
		h := anEnvelope().Header()
		h["ce-id"] = []string{sent}
		e, _, err := events.ReadEvent(h, nil)
		if err != nil {
			t.Errorf("%q: %v", sent, err)
		} else if e.ID != want {
			t.Errorf("%q is read as %q, want %q", sent, e.ID, want)
		}
	}
}

func TestHeaderNamesAreReadInAnyCase(t *testing.T) {
	h := events.Header{}
	for name, values := range anEnvelope().Header() {
		h[strings.ToUpper(name[:4])+name[4:]] = values
	}
	h["Ce-Extension1"] = []string{"anything"}
	h["Nats-Msg-Id"] = []string{"%"}
	h["CONTENT-TYPE"] = []string{"application/json"}
	e, data, err := events.ReadEvent(h, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(anEnvelope(), e); diff != "" || string(data) != "{}" {
		t.Errorf("data %q, envelope (-want +got):\n%s", data, diff)
	}
}

func TestAnEventInBinaryModeIsRefusedByName(t *testing.T) {
	set := func(name string, values ...string) func(events.Header) {
		return func(h events.Header) { h[name] = values }
	}
	drop := func(name string) func(events.Header) { return func(h events.Header) { delete(h, name) } }
	for want, change := range map[string]func(events.Header){
		"cloudevent.id must be present":                                                              drop("ce-id"),
		"cloudevent.source must be present":                                                          drop("ce-source"),
		"cloudevent.type must be present":                                                            drop("ce-type"),
		"cloudevent.specversion must be present":                                                     drop("ce-specversion"),
		`cloudevent.specversion must be "1.0"`:                                                       set("ce-specversion", "0.3"),
		"cloudevent.id must not be empty":                                                            set("ce-id", ""),
		"cloudevent.source must not be empty":                                                        set("ce-source", "%20"),
		"cloudevent.source must be a URI reference":                                                  set("ce-source", "two words"),
		"cloudevent.type must not be empty":                                                          set("ce-type", " "),
		"cloudevent.type must stand in the header once":                                              set("ce-type", "a", "b"),
		"cloudevent.id must stand in the header once":                                                set("CE-ID", "b"),
		"cloudevent.time must be an RFC 3339 time with an offset":                                    set("ce-time", "2026-10-01"),
		"cloudevent.time must not be empty":                                                          set("ce-time", ""),
		"cloudevent.datacontenttype must be application/json":                                        set("ce-datacontenttype", "text/plain"),
		"cloudevent.datacontenttype must not be empty":                                               set("ce-datacontenttype", ""),
		"cloudevent.dataschema must be a URI":                                                        set("ce-dataschema", "schema.json"),
		"cloudevent.subject must not be empty":                                                       set("ce-subject", ""),
		"cloudevent.traceparent must not be empty":                                                   set("ce-traceparent", ""),
		"cloudevent.id must be text without control characters":                                      set("ce-id", "%07"),
		"cloudevent.id must be percent-encoded UTF-8":                                                set("ce-id", "%C0%A0"),
		"cloudevent.id must have two hex digits after each percent sign":                             set("ce-id", "50%"),
		"cloudevent.subject must have two hex digits after each percent sign":                        set("ce-subject", "%zz"),
		"cloudevent.id must be percent-encoded outside the printable ASCII range":                    set("ce-id", "café"),
		"cloudevent.id must close its double quote":                                                  set("ce-id", `"open`),
		"cloudevent must name its attributes with lower-case letters and digits":                     set("ce-my_extension", "x"),
		"cloudevent.extension must be percent-encoded UTF-8":                                         set("ce-other", "%ff"),
		"cloudevent must be of the content type application/cloudevents+json where it is structured": set("Content-Type", "application/cloudevents+avro"),
	} {
		h := anEnvelope().Header()
		change(h)
		e, data, err := events.ReadEvent(h, []byte("raw"))
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		var refused *events.DecodeError
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Path, "cloudevent") {
			t.Errorf("%v is no DecodeError about the event", err)
		}
		if e != (events.Envelope{}) || string(data) != "raw" {
			t.Errorf("%s: a refused event gives %+v and %q, want nothing and its data", want, e, data)
		}
	}
}

func structured(change map[string]string) []byte {
	members := map[string]string{
		"specversion": `"1.0"`, "id": `"receipt_a"`, "source": `"afterwrite/dispatcher"`, "type": `"io.afterwrite.receipt.v0"`,
		"data": `{"a":1}`,
	}
	maps.Copy(members, change)
	var parts []string
	for name, value := range members {
		if value != "" {
			parts = append(parts, `"`+name+`": `+value)
		}
	}
	return []byte("{" + strings.Join(parts, ", ") + "}")
}

func TestAStructuredEventIsReadAndItsDataGivenAsSent(t *testing.T) {
	const data = "{ \"b\" : 1.0,\n \"a\":[ ], \"a\": \"\xff\" }"
	e := anEnvelope()
	payload := structuredEvent(e, []byte(data))
	for _, contentType := range []string{
		"application/cloudevents+json", "application/cloudevents+json; charset=UTF-8", "Application/CloudEvents+JSON", "application/cloudevents",
	} {
		got, gotData, err := events.ReadEvent(events.Header{"content-type": {contentType}}, payload)
		if err != nil {
			t.Fatalf("%s: %v", contentType, err)
		}
		e.TraceParent, e.TraceState = "", ""
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("%s: envelope (-want +got):\n%s", contentType, diff)
		}
		if string(gotData) != data {
			t.Errorf("%s: data %q, want it as sent", contentType, gotData)
		}
	}
}

func TestAStructuredEventMayCarryItsDataInBase64(t *testing.T) {
	payload := structured(map[string]string{
		"data": "", "data_base64": `"` + base64.StdEncoding.EncodeToString([]byte(`{"a":1}`)) + `"`, "time": "null", "flag": "true", "count": "-7", "note": `"x"`,
	})
	_, data, err := events.ReadEvent(structuredHeader(), payload)
	if err != nil || string(data) != `{"a":1}` {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestAStructuredEventIsRefusedByName(t *testing.T) {
	for want, payload := range map[string][]byte{
		"cloudevent must be a JSON object":                                            []byte(`[]`),
		"cloudevent must be valid JSON":                                               []byte(`{"specversion": "1.0",}`),
		"cloudevent must be one JSON object and nothing after it":                     append(structured(nil), '{', '}'),
		"cloudevent must not have a member twice":                                     []byte(`{"id":"a","id":"b"}`),
		"cloudevent must name its attributes with lower-case letters and digits":      structured(map[string]string{"ID": `"b"`}),
		"cloudevent.id must be present":                                               structured(map[string]string{"id": ""}),
		"cloudevent.source must be present":                                           structured(map[string]string{"source": "null"}),
		"cloudevent.id must be a string":                                              structured(map[string]string{"id": "7"}),
		"cloudevent.data must be present":                                             structured(map[string]string{"data": ""}),
		"cloudevent.data_base64 must not stand beside data":                           structured(map[string]string{"data_base64": `"e30="`}),
		"cloudevent.data_base64 must be a string of base64":                           structured(map[string]string{"data": "", "data_base64": `"{}"`}),
		`cloudevent.specversion must be "1.0"`:                                        structured(map[string]string{"specversion": `"0.3"`}),
		"cloudevent.type must not be empty":                                           structured(map[string]string{"type": `""`}),
		"cloudevent.time must be an RFC 3339 time with an offset":                     structured(map[string]string{"time": `"now"`}),
		"cloudevent.datacontenttype must be application/json":                         structured(map[string]string{"datacontenttype": `"application/xml"`}),
		"cloudevent.dataschema must be a URI":                                         structured(map[string]string{"dataschema": `"x"`}),
		"cloudevent must have extension attributes of 32-bit integers":                structured(map[string]string{"count": "2147483648"}),
		"cloudevent must have extension attributes of strings, booleans and integers": structured(map[string]string{"list": "[]"}),
		"cloudevent must have extension attributes of valid text":                     structured(map[string]string{"note": `"\u0000"`}),
		"cloudevent.source must be a URI reference":                                   structured(map[string]string{"source": `"%zz"`}),
	} {
		_, _, err := events.ReadEvent(structuredHeader(), payload)
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", payload, err, want)
		}
	}
}

func TestTheDataOfARefusedStructuredEventIsItsOwn(t *testing.T) {
	_, data, err := events.ReadEvent(structuredHeader(), []byte(`{"data":{"a":1},"id":7}`))
	if err == nil || string(data) != `{"a":1}` {
		t.Errorf("got %q, %v", data, err)
	}
}

// sdkEvent has the SDK take the attributes of a header, decoded by another percent-decoder than ours.
func sdkEvent(t interface{ Fatal(...any) }, h events.Header) event.Event {
	value := func(name string) string {
		if len(h["ce-"+name]) == 0 {
			return ""
		}
		decoded, err := url.PathUnescape(h["ce-"+name][0])
		if err != nil {
			t.Fatal(err)
		}
		return decoded
	}
	e := event.New(value("specversion"))
	e.SetID(value("id"))
	e.SetSource(value("source"))
	e.SetType(value("type"))
	e.SetDataSchema(value("dataschema"))
	e.SetDataContentType(value("datacontenttype"))
	at, err := time.Parse(time.RFC3339Nano, value("time"))
	if err != nil {
		t.Fatal(err)
	}
	e.SetTime(at)
	e.SetExtension("traceparent", value("traceparent"))
	e.SetExtension("tracestate", value("tracestate"))
	return e
}

func TestTheSDKAcceptsWhatWeSendAndWeAcceptWhatItSends(t *testing.T) {
	for _, k := range kinds {
		sent := events.NewEnvelope("id of "+k.name, "afterwrite/dispatcher", k.schemaVersion, eventTime)
		sent.TraceParent, sent.TraceState = anEnvelope().TraceParent, anEnvelope().TraceState
		theirs := sdkEvent(t, sent.Header())
		if err := theirs.SetData("application/json", stdjson.RawMessage(`{"a":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := theirs.Validate(); err != nil {
			t.Errorf("%s: the SDK refuses our attributes: %v", k.name, err)
		}
		payload, err := stdjson.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got, data, err := events.ReadEvent(structuredHeader(), payload)
		if err != nil {
			t.Fatalf("%s: we refuse the SDK's event: %v", k.name, err)
		}
		if diff := cmp.Diff(sent, got); diff != "" || string(data) != `{"a":1}` {
			t.Errorf("%s: data %s, envelope (-sent +got):\n%s", k.name, data, diff)
		}
		var again event.Event
		if err := stdjson.Unmarshal(structuredEvent(sent, data), &again); err != nil || again.Validate() != nil {
			t.Errorf("%s: the SDK refuses our structured event: %v, %v", k.name, err, again.Validate())
		}
	}
}

// Whatever the SDK refuses in an attribute, both of our readers refuse.
func TestWeAcceptNoAttributeThatTheSDKRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"id", "source", "type", "subject", "dataschema", "datacontenttype", "time"}).Draw(t, "attribute")
		value := rapid.OneOf(
			rapid.String().Filter(utf8.ValidString),
			rapid.StringMatching(`[ -~]{0,12}`),
			rapid.SampledFrom([]string{"", " ", "a", "urn:x", "http://[", "%", ":", "application/json", "a/b;", "2026-10-01T08:00:00Z", "2026-10-01T08:00:00+25:00"}),
		).Draw(t, "value")
		quoted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		payload := structured(map[string]string{name: string(quoted)})
		_, _, ours := events.ReadEvent(structuredHeader(), payload)
		var theirs event.Event
		sdk := stdjson.Unmarshal(payload, &theirs)
		if sdk == nil {
			sdk = theirs.Validate()
		}
		if ours == nil && sdk != nil {
			t.Fatalf("we accept %s %q, the SDK says %v", name, value, sdk)
		}
	})
}

func TestAnyEnvelopeThatIsReadBackIsTheOneThatWasSent(t *testing.T) {
	text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool {
		return r >= ' ' && (r < 0x7f || r > 0x9f) && r&0xfffe != 0xfffe && (r < 0xfdd0 || r > 0xfdef)
	})).Filter(func(s string) bool { return strings.TrimSpace(s) != "" })
	rapid.Check(t, func(t *rapid.T) {
		sent := events.NewEnvelope(text.Draw(t, "id"), "afterwrite/dispatcher", events.IntentSchema, eventTime)
		sent.TraceState = text.Draw(t, "tracestate")
		h := sent.Header()
		for name, values := range h {
			for i := range len(values[0]) {
				if c := values[0][i]; c <= ' ' || c > '~' {
					t.Fatalf("%s: %q is not printable ASCII", name, values[0])
				}
			}
		}
		got, _, err := events.ReadEvent(h, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sent, got); diff != "" {
			t.Fatalf("envelope (-sent +got):\n%s", diff)
		}
	})
}
