// Package items is the work that every host's guest does: decode a list of
// sandboxes from JSON and encode it again.
package items

import (
	"encoding/json"
	"fmt"
)

// Item is a sandbox as a vendor's list shows it.
type Item struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Image     string            `json:"image"`
	State     string            `json:"state"`
	CreatedAt string            `json:"createdAt"`
	CPUs      int               `json:"cpus"`
	MemoryMiB int               `json:"memoryMiB"`
	Labels    map[string]string `json:"labels"`
	Note      string            `json:"note"`
}

// Echo decodes and encodes doc.
func Echo(doc []byte) ([]byte, error) {
	var v []Item
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Payload is a document of n bytes or a little more that Echo gives back
// unchanged.
func Payload(n int) []byte {
	var list []Item
	var doc []byte
	for i := 0; len(doc) < n; i++ {
		list = append(list, Item{
			ID: fmt.Sprintf("sbx-%06d", i), Name: "a sandbox", Image: "registry.example.com/team/python:3.12-slim", State: "running",
			CreatedAt: "2026-01-02T03:04:05Z", CPUs: 2, MemoryMiB: 512, Labels: map[string]string{"owner": "core"},
			Note: "made for the nightly run of the integration suite; removed after an hour without use",
		})
		doc, _ = json.Marshal(list) // strings and numbers only: it cannot fail
	}
	return doc
}

// List is the reply to a plugin's list operation, for encoding/json.
type List struct {
	Items []Entry `json:"items"`
}

// Entry is one sandbox of a List, with its fields in the contract's order.
type Entry struct {
	Sandbox   string            `json:"sandbox"`
	Name      string            `json:"name,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	State     string            `json:"state"`
	CreatedAt int64             `json:"createdAt,omitempty"`
}

// EchoList decodes and encodes a List by reflection.
func EchoList(doc []byte) ([]byte, error) {
	var v List
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// ListPayload is a List of n bytes or a little more.
func ListPayload(n int) []byte {
	var l List
	var doc []byte
	for i := 0; len(doc) < n; i++ {
		l.Items = append(l.Items, Entry{
			Sandbox: fmt.Sprintf("sbx-%06d", i), Name: "a sandbox for the nightly run of the integration suite", State: "running",
			Labels: map[string]string{"owner": "core", "session": "s-0123456789abcdef"}, CreatedAt: 1767323045,
		})
		doc, _ = json.Marshal(l) // strings and numbers only: it cannot fail
	}
	return doc
}
