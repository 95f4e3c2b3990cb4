package events

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-json-experiment/json/jsontext"
)

// Header is a message header with the case of its names kept, as nats.Header.
type Header = map[string][]string

// HeaderTimeout carries, on a hook call, how long the dispatcher waits for the answer, in milliseconds.
const HeaderTimeout = "Afterwrite-Timeout-Ms"

// Envelope holds the CloudEvents 1.0 attributes of a document, the distributed-tracing extension included.
// The version is always 1.0 and the data is always application/json.
type Envelope struct {
	ID          string
	Source      string
	Type        string
	Time        Timestamp
	DataSchema  string
	TraceParent string
	TraceState  string
}

// documents are the kinds of document that travel as an event of their own.
var documents = []struct{ name, schemaVersion string }{
	{"receipt", ReceiptSchema},
	{"registration", RegistrationSchema},
	{"hook_input", HookInputSchema},
	{"hook_result", HookResultSchema},
	{"intent", IntentSchema},
	{"dispatch_receipt", DispatchReceiptSchema},
	{"refusal", RefusalSchema},
	{"conflict", ConflictSchema},
	{"execution", ExecutionSchema},
	{"service_request", ServiceRequestSchema},
	{"service_response", ServiceResponseSchema},
}

// kindAttributes are the attributes that all documents of one schema version share.
type kindAttributes struct{ eventType, dataSchema string }

var kinds = func() map[string]kindAttributes {
	kinds := make(map[string]kindAttributes, len(documents))
	for _, d := range documents {
		kinds[d.schemaVersion] = kindAttributes{"io.afterwrite." + d.name + ".v0", SchemaID(d.schemaVersion)}
	}
	return kinds
}()

// EventType is the CloudEvents type of the documents of a schema version, such as [ReceiptSchema]; "" if no document
// of it travels as an event.
func EventType(schemaVersion string) string { return kinds[schemaVersion].eventType }

// NewEnvelope is the envelope of a document of the given schema version, such as [HookInputSchema]. The id is the
// document's own, source the component that sends it, as in "afterwrite/dispatcher".
func NewEnvelope(id, source, schemaVersion string, at Timestamp) Envelope {
	kind := kinds[schemaVersion]
	return Envelope{ID: id, Source: source, Type: kind.eventType, Time: at, DataSchema: kind.dataSchema}
}

// Names of the attributes. In binary mode each travels as a header of its own, datacontenttype too: in the NATS
// binding a content-type header only tells that an event is structured.
const (
	attrID              = "id"
	attrSource          = "source"
	attrSpecVersion     = "specversion"
	attrType            = "type"
	attrTime            = "time"
	attrDataContentType = "datacontenttype"
	attrDataSchema      = "dataschema"
	attrSubject         = "subject"
	attrTraceParent     = "traceparent"
	attrTraceState      = "tracestate"

	headerPrefix      = "ce-"
	headerContentType = "content-type"
	mediaStructured   = "application/cloudevents"
	mediaJSON         = "application/json"
	specVersion       = "1.0"
)

// Header writes the envelope in binary content mode, values percent-encoded.
func (e Envelope) Header() Header {
	h := make(Header, 8)
	e.Set(h)
	return h
}

// Set writes the envelope as [Envelope.Header] does over the one that h holds, which Set or Header wrote, using its
// values' memory again. Headers of other names stay.
func (e Envelope) Set(h Header) {
	for _, a := range [...]struct{ name, value string }{
		{headerPrefix + attrSpecVersion, specVersion},
		{headerPrefix + attrDataContentType, mediaJSON},
		{headerPrefix + attrID, e.ID},
		{headerPrefix + attrSource, e.Source},
		{headerPrefix + attrType, e.Type},
		{headerPrefix + attrTime, string(e.Time)},
		{headerPrefix + attrDataSchema, e.DataSchema},
		{headerPrefix + attrTraceParent, e.TraceParent},
		{headerPrefix + attrTraceState, e.TraceState},
	} {
		values := h[a.name]
		switch {
		case a.value == "" && values == nil:
		case a.value == "":
			delete(h, a.name)
		case len(values) != 1:
			h[a.name] = []string{percentEncode(a.value)}
		case values[0] != a.value || strings.IndexByte(a.value, '%') >= 0:
			values[0] = percentEncode(a.value)
		}
	}
}

// ReadEvent reads an event in binary or structured mode and gives its data as it was sent. Attributes that the
// contract does not know are legal and not kept.
//
// The error is a [*DecodeError] whose path starts with "cloudevent". The data is given with the error too, so that a
// refusal can be recorded under its digest; it is the whole payload where a structured event's data was not found.
func ReadEvent(h Header, payload []byte) (Envelope, []byte, error) {
	var a attributes
	data := payload
	structured, fault := isStructured(h)
	switch {
	case fault != nil:
	case structured:
		data, fault = a.readJSON(payload)
	default:
		fault = a.readHeader(h)
	}
	if fault == nil {
		fault = a.validate()
	}
	if fault == nil && a.sdk != nil {
		fault = a.validateBySDK()
	}
	if fault != nil {
		return Envelope{}, data, fault
	}
	return a.Envelope, data, nil
}

// isStructured reports whether the header says that the payload is the whole event. The binding has two modes: a
// content type that begins as CloudEvents' means structured, anything else binary.
func isStructured(h Header) (bool, *DecodeError) {
	for name, values := range h {
		if len(name) != len(headerContentType) || !strings.EqualFold(name, headerContentType) {
			continue
		}
		for _, value := range values {
			if !hasPrefixFold(value, mediaStructured) {
				continue
			}
			media, params, err := mime.ParseMediaType(value)
			if err != nil || media != mediaStructured && media != mediaStructured+"+json" || !isUTF8Charset(params) {
				return false, eventPath().bad("must be of the content type application/cloudevents+json where it is structured")
			}
			return true, nil
		}
	}
	return false, nil
}

// attributes are what is read of an event before its rules are checked.
type attributes struct {
	Envelope
	specVersion     string
	dataContentType string
	subject         string
	// present tells an attribute that is empty from one that is absent.
	present attributeSet
	// sdk is the event as the CloudEvents SDK sees it; nil in binary mode.
	sdk *event.Event
}

// attributeSet has one bit for each attribute that the contract knows.
type attributeSet uint16

// known gives the place of an attribute that the contract knows, and its bit.
func (a *attributes) known(name string) (*string, attributeSet) {
	switch name {
	case attrID:
		return &a.ID, 1 << 0
	case attrSource:
		return &a.Source, 1 << 1
	case attrSpecVersion:
		return &a.specVersion, 1 << 2
	case attrType:
		return &a.Type, 1 << 3
	case attrTime:
		return (*string)(&a.Time), 1 << 4
	case attrDataContentType:
		return &a.dataContentType, 1 << 5
	case attrDataSchema:
		return &a.DataSchema, 1 << 6
	case attrSubject:
		return &a.subject, 1 << 7
	case attrTraceParent:
		return &a.TraceParent, 1 << 8
	case attrTraceState:
		return &a.TraceState, 1 << 9
	}
	return nil, 0
}

func eventPath() path                { return here.member("cloudevent") }
func attributePath(name string) path { return eventPath().member(name) }

// readHeader reads the attributes of an event in binary mode. Of several faults it gives the first by path, because
// a header has no order.
func (a *attributes) readHeader(h Header) *DecodeError {
	var first *DecodeError
	for name, values := range h {
		attribute, exact := strings.CutPrefix(name, headerPrefix)
		if !exact {
			if !hasPrefixFold(name, headerPrefix) {
				continue
			}
			attribute = name[len(headerPrefix):]
		}
		fault := a.readAttribute(strings.ToLower(attribute), values)
		if fault != nil && (first == nil || fault.Path < first.Path) {
			first = fault
		}
	}
	return first
}

func (a *attributes) readAttribute(name string, values []string) *DecodeError {
	place, bit := a.known(name)
	if place == nil {
		if !isAttributeName(name) {
			return eventPath().bad(ruleAttributeName)
		}
		var extension string
		place, name = &extension, "extension"
	}
	if len(values) != 1 || a.present&bit != 0 {
		return attributePath(name).fault(FaultDuplicateMember, "must stand in the header once")
	}
	value, rule := percentDecode(strings.Trim(values[0], " \t"))
	if rule != "" {
		return attributePath(name).fault(FaultEncoding, rule)
	}
	a.present |= bit
	*place = value
	return nil
}

// readJSON reads a structured event. Its envelope is read strictly; its data is not looked into, for it is the
// document's decoder that judges it, and is given as it was sent.
func (a *attributes) readJSON(payload []byte) ([]byte, *DecodeError) {
	// Duplicates are looked for in the envelope below, and not in the data.
	dec := jsontext.NewDecoder(bytes.NewBuffer(payload), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return payload, eventPath().fault(FaultSyntax, "must be a JSON object")
	}
	data := payload
	sdk := event.New(specVersion)
	a.sdk = &sdk
	seen := make([]string, 0, 12)
	for dec.PeekKind() == '"' {
		name, value, fault := readMember(dec)
		if fault == nil && slices.Contains(seen, name) {
			fault = eventPath().fault(FaultDuplicateMember, "must not have a member twice")
		}
		if fault != nil {
			return data, fault
		}
		seen = append(seen, name)
		switch name {
		case memberData:
			data = bytes.Clone(value)
		case memberDataBase64:
			data, fault = decodeBase64(value, payload)
		default:
			fault = a.readJSONAttribute(name, value)
		}
		if fault != nil {
			return data, fault
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return data, eventPath().fault(FaultSyntax, "must be valid JSON")
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return data, eventPath().fault(FaultSyntax, "must be one JSON object and nothing after it")
	}
	switch plain, encoded := slices.Contains(seen, memberData), slices.Contains(seen, memberDataBase64); {
	case plain && encoded:
		return data, attributePath(memberDataBase64).bad("must not stand beside data")
	case !plain && !encoded:
		return data, attributePath(memberData).missing()
	}
	return data, nil
}

// The members of a structured event that are no attributes.
const (
	memberData       = "data"
	memberDataBase64 = "data_base64"
)

func readMember(dec *jsontext.Decoder) (name string, value jsontext.Value, _ *DecodeError) {
	tok, err := dec.ReadToken()
	if err == nil {
		name = tok.String()
		value, err = dec.ReadValue()
	}
	if err != nil {
		return "", nil, eventPath().fault(FaultSyntax, "must be valid JSON")
	}
	return name, value, nil
}

func decodeBase64(value jsontext.Value, payload []byte) ([]byte, *DecodeError) {
	if text, ok := unquote(value); ok {
		if data, err := base64.StdEncoding.DecodeString(text); err == nil {
			return data, nil
		}
	}
	return payload, attributePath(memberDataBase64).bad("must be a string of base64")
}

func unquote(value jsontext.Value) (string, bool) {
	if value.Kind() != '"' {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	return string(text), err == nil
}

// readJSONAttribute reads one attribute, for the contract and for the SDK. Null is an absent attribute.
func (a *attributes) readJSONAttribute(name string, value jsontext.Value) *DecodeError {
	if !isAttributeName(name) {
		return eventPath().bad(ruleAttributeName)
	}
	place, bit := a.known(name)
	switch kind := value.Kind(); {
	case kind == 'n':
	case place != nil:
		text, ok := unquote(value)
		if !ok {
			return attributePath(name).fault(FaultWrongType, "must be a string")
		}
		*place = text
		a.present |= bit
	case kind == '"':
		text, ok := unquote(value)
		if !ok || !isAttributeText(text) {
			return eventPath().fault(FaultEncoding, "must have extension attributes of valid text")
		}
		a.sdk.SetExtension(name, text)
	case kind == 't' || kind == 'f':
		a.sdk.SetExtension(name, kind == 't')
	case kind == '0':
		n, err := strconv.ParseInt(string(value), 10, 32)
		if err != nil {
			return eventPath().fault(FaultNumber, "must have extension attributes of 32-bit integers")
		}
		a.sdk.SetExtension(name, int32(n))
	default:
		return eventPath().fault(FaultWrongType, "must have extension attributes of strings, booleans and integers")
	}
	return nil
}

// validateBySDK has the CloudEvents SDK judge a structured event too: it comes from other software, and the SDK is
// what most of that is made of.
func (a *attributes) validateBySDK() *DecodeError {
	sdk := a.sdk
	sdk.SetID(a.ID)
	sdk.SetSource(a.Source)
	sdk.SetType(a.Type)
	for _, optional := range [...]struct {
		name string
		set  func(string)
	}{
		{attrTime, func(string) { sdk.SetTime(a.Time.Time()) }},
		{attrDataContentType, sdk.SetDataContentType},
		{attrDataSchema, sdk.SetDataSchema},
		{attrSubject, sdk.SetSubject},
	} {
		if place, bit := a.known(optional.name); a.present&bit != 0 {
			optional.set(*place)
		}
	}
	var faults event.ValidationError
	if err := sdk.Validate(); !errors.As(err, &faults) {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(faults)))
	if place, _ := a.known(name); place == nil {
		return eventPath().bad("must keep the rules of CloudEvents 1.0")
	}
	return attributePath(name).bad("must keep the rules of CloudEvents 1.0")
}

// validate checks what CloudEvents 1.0 asks of the attributes, and that the data is JSON. In binary mode it is on the
// path of every message, so it works on the strings as they stand.
func (a *attributes) validate() *DecodeError {
	for _, required := range [...]string{attrSpecVersion, attrID, attrSource, attrType} {
		if place, bit := a.known(required); a.present&bit == 0 {
			return attributePath(required).missing()
		} else if strings.TrimSpace(*place) == "" {
			return attributePath(required).bad("must not be empty")
		}
	}
	if a.specVersion != specVersion {
		return attributePath(attrSpecVersion).bad(`must be "1.0"`)
	}
	for _, name := range [...]string{
		attrID, attrSource, attrType, attrTime, attrDataContentType, attrDataSchema, attrSubject, attrTraceParent, attrTraceState,
	} {
		place, bit := a.known(name)
		switch {
		case a.present&bit == 0:
		case strings.TrimSpace(*place) == "":
			return attributePath(name).bad("must not be empty")
		case !isAttributeText(*place):
			return attributePath(name).fault(FaultEncoding, "must be text without control characters")
		}
	}
	if !isURIReference(a.Source) {
		return attributePath(attrSource).bad("must be a URI reference")
	}
	if a.Time != "" {
		if err := a.Time.validate(attributePath(attrTime)); err != nil {
			return err
		}
	}
	if a.dataContentType != "" && !isJSONMedia(a.dataContentType) {
		return attributePath(attrDataContentType).bad("must be application/json")
	}
	if a.DataSchema != "" && !isURI(a.DataSchema) {
		return attributePath(attrDataSchema).bad("must be a URI")
	}
	return nil
}

const ruleAttributeName = "must name its attributes with lower-case letters and digits"

func isAttributeName(name string) bool { return name != "" && leading(name, isLowerOrDigit) == name }

// isAttributeText reports whether s is what CloudEvents calls a string: no control characters, no non-characters.
func isAttributeText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return isUnicodeText(s)
		}
	}
	return true
}

func isUnicodeText(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) || r&0xfffe == 0xfffe || 0xfdd0 <= r && r <= 0xfdef {
			return false
		}
	}
	return utf8.ValidString(s)
}

func isJSONMedia(s string) bool {
	if s == mediaJSON {
		return true
	}
	media, params, err := mime.ParseMediaType(s)
	return err == nil && media == mediaJSON && isUTF8Charset(params)
}

func isUTF8Charset(params map[string]string) bool {
	charset, there := params["charset"]
	return !there || strings.EqualFold(charset, "utf-8")
}

func isURI(s string) bool {
	if rest, ours := strings.CutPrefix(s, schemaIDPrefix); ours && IsName(rest) {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && leading(s, isURIByte) == s
}

func isURIReference(s string) bool {
	if leading(s, isPlainPathByte) == s {
		return true
	}
	_, err := url.Parse(s)
	return err == nil && leading(s, isURIByte) == s
}

// isPlainPathByte: letters of a path that can mean nothing else, as in afterwrite/dispatcher.
func isPlainPathByte(c byte) bool { return isAlnum(c) || c == '/' || c == '-' || c == '_' || c == '.' }

// isURIByte: the characters of RFC 3986.
func isURIByte(c byte) bool {
	return isAlnum(c) || strings.IndexByte("-._~:/?#[]@!$&'()*+,;=%", c) >= 0
}
