package events

import "github.com/go-json-experiment/json/jsontext"

// Schema versions of the documents between a caller and a service.
const (
	ServiceRequestSchema  = "loopx_post_writeback_service_request_v0"
	ServiceResponseSchema = "loopx_post_writeback_service_response_v0"
)

// ServiceRequest asks the one implementation of a service for an answer.
type ServiceRequest struct {
	// IdempotencyKey is the same for every repetition of one request: an executor uses the intent id.
	IdempotencyKey string         `json:"idempotency_key"`
	Payload        jsontext.Value `json:"payload"`
	SchemaVersion  string         `json:"schema_version"`
	Service        string         `json:"service"`
	// TimeoutMillis is how long the caller waits; the service must not work past it.
	TimeoutMillis int `json:"timeout_ms"`
}

// ServiceResponse is a service's answer. A service that cannot answer sends a NATS service error instead.
type ServiceResponse struct {
	IdempotencyKey string `json:"idempotency_key"`
	// Payload satisfies the return schema of the service.
	Payload       jsontext.Value `json:"payload"`
	SchemaVersion string         `json:"schema_version"`
	Service       string         `json:"service"`
}

func (r *ServiceRequest) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, ServiceRequestSchema); err != nil {
		return err
	}
	if r.TimeoutMillis < 1 || r.TimeoutMillis > MaxTimeoutMillis {
		return at.member("timeout_ms").bad("must be from 1 to 30000 ms")
	}
	return wantService(at, r.Service, r.IdempotencyKey, r.Payload)
}

func (r *ServiceResponse) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, ServiceResponseSchema); err != nil {
		return err
	}
	return wantService(at, r.Service, r.IdempotencyKey, r.Payload)
}

func wantService(at path, service, key string, payload jsontext.Value) *DecodeError {
	if err := wantName(at.member("service"), service); err != nil {
		return err
	}
	if !IsOpaqueID(key) {
		return at.member("idempotency_key").bad("must be an opaque id")
	}
	if payload.Kind() != '{' {
		return at.member("payload").bad("must be an object")
	}
	return nil
}
