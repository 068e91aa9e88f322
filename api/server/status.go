package server

import (
	"net/http"

	"agentos/internal/problem"
)

// status is the one table from error code to HTTP status. A test holds it to the
// list of codes and to the document.
func status(code problem.Code) int {
	switch code {
	case problem.InvalidRequest, problem.InvalidJSON:
		return http.StatusBadRequest
	case problem.Unauthorized:
		return http.StatusUnauthorized
	case problem.Forbidden, problem.ForbiddenOrigin, problem.EditDenied, problem.NotReviewer, problem.RequesterMayNotDecide, problem.AlreadyVoted:
		return http.StatusForbidden
	case problem.EnvNotFound, problem.AgentNotFound, problem.CapabilityNotFound, problem.RunNotFound,
		problem.HoldNotFound, problem.KeyNotFound, problem.RouteNotFound:
		return http.StatusNotFound
	case problem.MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case problem.IdempotencyConflict, problem.HoldDecided, problem.HoldExpired, problem.HoldCancelled,
		problem.HoldStale, problem.NoAdminKey:
		return http.StatusConflict
	case problem.BodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case problem.UnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case problem.MisdirectedHost:
		return http.StatusMisdirectedRequest
	case problem.InvalidBody, problem.InvalidInput, problem.InvalidDecision, problem.InvalidEdit:
		return http.StatusUnprocessableEntity
	case problem.ModelError:
		return http.StatusBadGateway
	case problem.QueueFull, problem.RateLimited:
		return http.StatusTooManyRequests
	case problem.StoreUnavailable, problem.ModelUnavailable:
		return http.StatusServiceUnavailable
	case problem.Internal, problem.JournalDamaged:
		return http.StatusInternalServerError
	case problem.InvalidOutput, problem.TooManyTurns, problem.TokenBudgetExceeded, problem.Timeout, problem.MCPUnavailable,
		problem.EgressDenied, problem.InvalidHistory, problem.RecoveryExhausted,
		problem.InvalidManifest, problem.InvalidSettings, problem.StoreLocked:
		// Codes of failed runs and of commands never answer a request.
	}
	return http.StatusInternalServerError
}
