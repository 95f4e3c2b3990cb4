package periodicreport

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers"
)

// HookFile is the file by which a dispatcher installs the hook: its registration and its payload schema.
//
//go:embed hook.json
var HookFile []byte

// ReturnSchema is the JSON Schema of what the service returns, a [Decision].
//
//go:embed decision.schema.json
var ReturnSchema []byte

// ServiceTimeout bounds one evaluation, which takes well under a millisecond.
const ServiceTimeout = time.Second

// Registration is the one in [HookFile].
func Registration() (*events.Registration, error) {
	file, err := events.DecodeValue[struct {
		PayloadSchemas jsontext.Value `json:"payload_schemas"`
		Registration   jsontext.Value `json:"registration"`
	}](HookFile)
	if err != nil {
		return nil, fmt.Errorf("periodicreport: hook file: %w", err)
	}
	return events.Decode[events.Registration](file.Registration)
}

// Provider is the capability's hook and service, to be served by [providers.Serve].
func Provider() (providers.Option, error) {
	registration, err := Registration()
	if err != nil {
		return nil, err
	}
	returns, err := events.CompilePayloadSchema(ServiceName, ReturnSchema)
	if err != nil {
		return nil, fmt.Errorf("periodicreport: return schema: %w", err)
	}
	return providers.Options(
		providers.WithHook(registration, providers.HookFunc(Hook)),
		providers.WithService(ServiceName, ServiceTimeout, returns, providers.ServiceFunc(Service)),
	), nil
}
