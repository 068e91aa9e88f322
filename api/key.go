package api

// Key is an API key as lists show it. Its secret was shown once, when it was made.
type Key struct {
	// ID names the key in logs and when it is revoked; it is no secret.
	ID string `json:"id"`
	// Name is who acts with the key. A person may have several keys.
	Name   string   `json:"name"`
	Roles  []string `json:"roles"`
	Groups []string `json:"groups,omitempty"`
	// Status is "active", "expired" or "revoked".
	Status    string `json:"status"`
	CreatedAt Time   `json:"created_at"`
	CreatedBy string `json:"created_by"`
	// ExpiresAt is when the key ends by itself; absent when it does not.
	ExpiresAt *Time  `json:"expires_at,omitempty"`
	RevokedAt *Time  `json:"revoked_at,omitempty"`
	RevokedBy string `json:"revoked_by,omitempty"`
}

// KeyList is all keys, oldest first.
type KeyList struct {
	Keys []Key `json:"keys"`
}

// CreateKey is the body that makes a key.
type CreateKey struct {
	Name string `json:"name"`
	// Roles are at least one of "viewer", "runner", "reviewer" and "admin".
	Roles []string `json:"roles"`
	// Groups are the operator's own words, which policy may name as roles of
	// reviewers and in conditions.
	Groups []string `json:"groups,omitempty"`
	// ExpiresIn is a duration such as "2160h" after which the key ends by itself.
	ExpiresIn string `json:"expires_in,omitempty"`
}

// CreatedKey is the answer to CreateKey.
type CreatedKey struct {
	Key Key `json:"key"`
	// Secret is the text to send as bearer token. It is not kept and never shown
	// again.
	Secret string `json:"secret"`
}

// Me is who makes a request.
type Me struct {
	Name string `json:"name"`
	// Roles are what may be done, those that others include too.
	Roles  []string `json:"roles"`
	Groups []string `json:"groups"`
	// KeyID is the key of the request; absent on a server without keys.
	KeyID string `json:"key_id,omitempty"`
}
