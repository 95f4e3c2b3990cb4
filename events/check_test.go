package events_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
)

// Whatever is wrong with a document that was made, Check says of it what its reader would.
func TestCheckFindsWhatDecodeWould(t *testing.T) {
	t.Run("receipt", func(t *testing.T) {
		checkCheck[events.Receipt](t, "receipt-replan_recorded", events.Check, events.Encode, events.Decode)
	})
	t.Run("input", func(t *testing.T) {
		checkCheck[events.HookInput](t, "hook_input-whole", events.Check, events.Encode, events.Decode)
	})
	t.Run("result", func(t *testing.T) {
		checkCheck[events.HookResult](t, "hook_result-proposed", events.Check, events.Encode, events.Decode)
	})
	t.Run("record", func(t *testing.T) {
		checkCheck[events.DispatchReceipt](t, "dispatch_receipt-retrying", events.Check, events.Encode, events.Decode)
	})
	t.Run("response", func(t *testing.T) {
		checkCheck[events.ServiceResponse](t, "service_response-plain", events.Check, events.Encode, events.Decode)
	})
}

func checkCheck[T any](
	t *testing.T, fixture string, check func(*T) error, encode func(*T) ([]byte, error), decode func([]byte) (*T, error),
) {
	data := readFile(t, "testdata/valid/"+fixture+".json")
	rapid.Check(t, func(t *rapid.T) {
		doc, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		spoil(t, reflect.ValueOf(doc).Elem())
		got := check(doc)
		encoded, err := encode(doc)
		if err != nil {
			// A string that is not UTF-8 cannot even be written.
			fault, _ := errors.AsType[*events.DecodeError](err)
			if fault == nil || got == nil || got.Error() != fault.Error() {
				t.Fatalf("found %v, want %v", got, fault)
			}
			return
		}
		_, want := decode(encoded)
		if (got == nil) != (want == nil) || got != nil && got.Error() != want.Error() {
			t.Fatalf("found %v, want %v\n%s", got, want, encoded)
		}
	})
}

// spoil changes one value within v, most of the time to what it may not be.
func spoil(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		spoil(t, v.Field(rapid.IntRange(0, v.NumField()-1).Draw(t, "field")))
	case reflect.Pointer:
		if v.IsNil() || rapid.IntRange(0, 4).Draw(t, "null") == 0 {
			v.SetZero()
			return
		}
		spoil(t, v.Elem())
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "a", "A b", "\xff", "a\xff", "\ud7ff", `"`, strings.Repeat("a", 2000)}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.SampledFrom([]int64{0, 1, -1, 1<<53 - 1, 1 << 53, -1<<53 + 1, -1 << 53}).Draw(t, "number"))
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[jsontext.Value]() {
			deep := rapid.IntRange(27, 33).Draw(t, "levels")
			v.SetBytes([]byte(rapid.SampledFrom([]string{
				"null", "7", "[]", `{"a":"\\"}`, strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep),
			}).Draw(t, "payload")))
			return
		}
		if v.Len() == 0 || rapid.IntRange(0, 4).Draw(t, "empty") == 0 {
			v.SetZero()
			return
		}
		if more := rapid.SampledFrom([]int{0, 1, 80}).Draw(t, "more"); more > 0 {
			for range more {
				v.Set(reflect.Append(v, v.Index(0)))
			}
			return
		}
		spoil(t, v.Index(rapid.IntRange(0, v.Len()-1).Draw(t, "element")))
	}
}
