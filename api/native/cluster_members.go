package native

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"millrace/api"
)

// Membership is how the members of the metadata quorum are told and changed, from any node. A func that is nil
// means that this cannot be done here. Their errors are *MembershipErrors, or mean that no answer came.
type Membership struct {
	Members  func(ctx context.Context) ([]Member, error)
	Add      func(ctx context.Context, id int32, url string) error
	Promote  func(ctx context.Context, id int32) error
	Demote   func(ctx context.Context, id int32) error
	Remove   func(ctx context.Context, id int32) error
	Transfer func(ctx context.Context, id int32) error // to the voter id, or to any if it is -1
	// Listed are the ids in --voters, sorted.
	Listed []int32
}

// Member is one member of the metadata quorum.
type Member struct {
	ID            int32
	URL           string // its base URL, http://host:port
	Voter, Leader bool
	LastContact   time.Time // when it and the leader heard of each other last; zero if that is not known
}

// MembershipError is a refusal. Code is a name of package api's catalogue; another one is told by its Status.
type MembershipError struct {
	Status int
	Code   string
	Detail string // what is wrong and what to do
}

func (e *MembershipError) Error() string { return e.Detail }

// fault is the row of the catalogue for a refusal.
func (e *MembershipError) fault() *api.Fault {
	catalogue := api.Catalogue()
	if i := slices.IndexFunc(catalogue, func(f *api.Fault) bool { return f.Name == e.Code }); i >= 0 {
		return catalogue[i]
	}
	switch e.Status {
	case http.StatusBadRequest:
		return api.UnprocessableBody
	case http.StatusNotFound:
		return api.NoSuchMember
	case http.StatusConflict:
		return api.ClusterConflict
	case http.StatusServiceUnavailable:
		return api.MembershipUnavailable
	case http.StatusGatewayTimeout:
		return api.NoAnswer
	default:
		return api.Internal
	}
}

func membershipFault(err error) error {
	var m *MembershipError
	if errors.As(err, &m) {
		e := api.Refuse(m.fault(), "%s", m.Detail)
		e.Cause = err
		return e
	}
	return err
}

// errNoMembership is the answer where membership is not wired.
func errNoMembership() error {
	return api.Refuse(api.MembershipUnavailable, "this node does not manage the members of a cluster")
}

// members lists the members by id.
func (s *Server) members(ctx context.Context) ([]Member, error) {
	if s.membership.Members == nil {
		return nil, errNoMembership()
	}
	list, err := s.membership.Members(ctx)
	if err != nil {
		return nil, membershipFault(err)
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// UnmarshalJSON reads the body strictly. Both fields must be there, since Go's zero values are values too.
func (m *NewClusterMember) UnmarshalJSON(b []byte) error {
	var named struct {
		ID  *int32  `json:"id"`
		URL *string `json:"url"`
	}
	if err := api.Decode(b, &named); err != nil {
		return err
	}
	switch {
	case named.ID == nil:
		return api.Required("id")
	case named.URL == nil:
		return api.Required("url")
	}
	*m = NewClusterMember{Id: *named.ID, Url: *named.URL}
	return nil
}

// UnmarshalJSON reads the body strictly.
func (t *LeadershipTransfer) UnmarshalJSON(b []byte) error {
	type plain LeadershipTransfer
	return api.Decode(b, (*plain)(t))
}

// ListMembers lists the members of the metadata quorum.
func (s *Server) ListMembers(ctx context.Context, _ ListMembersRequestObject) (ListMembersResponseObject, error) {
	list, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	out := ListMembers200JSONResponse{Items: make([]ClusterMember, len(list))}
	for i, m := range list {
		out.Items[i] = memberResponse(m)
	}
	return out, nil
}

func memberResponse(m Member) ClusterMember {
	out := ClusterMember{Id: m.ID, Url: m.URL, Voter: m.Voter, Leader: m.Leader}
	if !m.LastContact.IsZero() {
		at := m.LastContact.UTC().Format("2006-01-02T15:04:05.000Z")
		out.LastContact = &at
	}
	return out
}

// AddMember adds a member that does not vote.
func (s *Server) AddMember(ctx context.Context, req AddMemberRequestObject) (AddMemberResponseObject, error) {
	id, base := req.Body.Id, req.Body.Url
	if id < 1 {
		return nil, api.Refuse(api.MalformedBody, "id is at least 1, not %d", id)
	}
	if err := checkNodeURL(base); err != nil {
		return nil, err
	}
	if s.membership.Add == nil {
		return nil, errNoMembership()
	}
	if err := s.membership.Add(ctx, id, base); err != nil {
		return nil, membershipFault(err)
	}
	out := AddMember201JSONResponse{
		Body:    ClusterMember{Id: id, Url: base},
		Headers: AddMember201ResponseHeaders{Location: "/v1/cluster/members/" + strconv.Itoa(int(id))},
	}
	if list, err := s.members(ctx); err == nil { // it is added already; what is not told now a list tells later
		for _, m := range list {
			if m.ID == id {
				out.Body = memberResponse(m)
			}
		}
	}
	return out, nil
}

// checkNodeURL refuses what is no base URL of a node.
func checkNodeURL(text string) error {
	const most = 1024
	u, err := url.Parse(text)
	wrong := err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil
	if wrong || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || len(text) > most {
		return api.Refuse(api.MalformedBody, "url %.80q is not a node's: want one such as http://h4.example:8082", text)
	}
	return nil
}

// RemoveMember takes a member out of the quorum.
func (s *Server) RemoveMember(ctx context.Context, req RemoveMemberRequestObject) (RemoveMemberResponseObject, error) {
	if err := s.changeMember(ctx, req.MemberId, s.membership.Remove); err != nil {
		return nil, err
	}
	return RemoveMember204Response{}, nil
}

// PromoteMember makes a member a voter.
func (s *Server) PromoteMember(ctx context.Context, req PromoteMemberRequestObject) (
	PromoteMemberResponseObject, error,
) {
	if err := s.changeMember(ctx, req.MemberId, s.membership.Promote); err != nil {
		return nil, err
	}
	return PromoteMember204Response{}, nil
}

// DemoteMember takes a member's vote.
func (s *Server) DemoteMember(ctx context.Context, req DemoteMemberRequestObject) (DemoteMemberResponseObject, error) {
	if err := s.changeMember(ctx, req.MemberId, s.membership.Demote); err != nil {
		return nil, err
	}
	return DemoteMember204Response{}, nil
}

func (s *Server) changeMember(ctx context.Context, id int32, change func(context.Context, int32) error) error {
	if change == nil {
		return errNoMembership()
	}
	// The leader says who is no member: this node may not have heard yet of one that was just added.
	return membershipFault(change(ctx, id))
}

// TransferLeadership hands the lead of the quorum over.
func (s *Server) TransferLeadership(ctx context.Context, req TransferLeadershipRequestObject) (
	TransferLeadershipResponseObject, error,
) {
	to := int32(-1)
	if req.Body.To != nil {
		if to = *req.Body.To; to < 1 {
			return nil, api.Refuse(api.MalformedBody, "to is at least 1, not %d", to)
		}
	}
	if s.membership.Transfer == nil {
		return nil, errNoMembership()
	}
	if err := s.membership.Transfer(ctx, to); err != nil {
		return nil, membershipFault(err)
	}
	return TransferLeadership204Response{}, nil
}
