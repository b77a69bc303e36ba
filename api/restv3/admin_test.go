package restv3_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/api/restv3"
)

func TestListClustersNamesTheOneServed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("GET", "/v3/clusters", "")
		require.Equal(t, 200, a.status)
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		require.Equal(t, map[string]any{"self": f.url + "/v3/clusters", "next": nil}, a.body["metadata"])
		data := a.body["data"].([]any)
		require.Len(t, data, 1)
		cluster := data[0].(map[string]any)
		require.Equal(t, "crn:///kafka="+f.id, cluster["metadata"].(map[string]any)["resource_name"])
		require.Equal(t, map[string]any{"related": f.url + f.at("/brokers/{b}")}, cluster["controller"])
	})
}

// links collects every address in an answer.
func links(v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if s, ok := member.(string); ok && (name == "self" || name == "related") {
				into[s] = true
			}
			links(member, into)
		}
	case []any:
		for _, element := range v {
			links(element, into)
		}
	}
}

// Every address that any answer holds answers itself, under both prefixes; only what this API does not
// serve yet, and what is not there since nothing moves, is a 404, as JSON.
func TestEveryLinkAnswers(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		notYet := []string{"/acls", "/0/reassignment", "/1/reassignment", "/2/reassignment"}
		for _, prefix := range []string{"", "/kafka"} {
			seen := map[string]bool{}
			next := map[string]bool{
				f.url + prefix + "/v3/clusters":                             true,
				f.url + prefix + f.at("/brokers/-/configs"):                 true,
				f.url + prefix + f.at("/topics/-/configs"):                  true,
				f.url + prefix + f.at("/topics/orders/partitions/2/offset"): true,
			}
			for len(next) > 0 {
				found := map[string]bool{}
				for u := range next {
					require.True(t, strings.HasPrefix(u, f.url+prefix+"/v3/"), u)
					seen[u] = true
					a := f.call("GET", u, "")
					if slices.ContainsFunc(notYet, func(end string) bool { return strings.HasSuffix(u, end) }) {
						f.refused(a, 404, 404, "")
						continue
					}
					require.Equal(t, 200, a.status, u)
					links(a.body, found)
				}
				next = map[string]bool{}
				for u := range found {
					next[u] = !seen[u]
					if seen[u] {
						delete(next, u)
					}
				}
			}
			require.Greater(t, len(seen), 60)
		}
	}, "payments")
}

func TestLinksFollowTheHost(t *testing.T) {
	f := start(t, restv3.Options{})
	req := f.request("GET", "/kafka/v3/clusters", "")
	req.Host = "proxy.example:8443"
	require.Contains(t, f.do(req).text, `"self":"http://proxy.example:8443/kafka/v3/clusters"`)
}

func TestLinksFollowTheAdvertisedAddress(t *testing.T) {
	advertise := func(o *api.Options) { o.AdvertisedURLs = []string{"https://secure:9443/", "http://public.example:80"} }
	f := startWith(t, restv3.Options{}, setup{edge: advertise})
	require.Contains(t, f.call("GET", "/v3/clusters", "").text, `"self":"http://public.example:80/v3/clusters"`)
	f = startWith(t, restv3.Options{}, setup{edge: advertise, srv: (*httptest.Server).StartTLS})
	require.Contains(t, f.call("GET", "/kafka/v3/clusters", "").text, `"self":"https://secure:9443/kafka/v3/clusters"`)
	f = startWith(t, restv3.Options{}, setup{srv: (*httptest.Server).StartTLS})
	require.Contains(t, f.call("GET", "/v3/clusters", "").text, `"self":"`+f.url+`/v3/clusters"`)
}

func TestOtherClustersAreRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range [][2]string{
			{"GET", "/v3/clusters/other"}, {"GET", "/v3/clusters/other/topics"}, {"GET", "/v3/clusters/other/brokers/0"},
			{"DELETE", "/v3/clusters/other/topics/orders"}, {"GET", "/kafka/v3/clusters/other/topics/orders/configs"},
		} {
			f.refused(f.call(c[0], c[1], ""), 404, 404, "Cluster other cannot be found.")
		}
		f.refused(f.call("POST", "/v3/clusters/other/topics", `{"topic_name":"x"}`), 404, 404, "")
	})
}

func TestReadsRefuse(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			path         string
			status, code int
		}{
			{"/brokers/7", 404, 404},
			{"/brokers/x", 404, 404},
			{"/brokers/7/configs", 404, 404},
			{"/brokers/7/configs/broker.id", 404, 404},
			{"/brokers/7/partition-replicas", 404, 404},
			{"/brokers/{b}/configs/none", 404, 404},
			{"/broker-configs/none", 404, 404},
			{"/topics/none", 404, 40403},
			{"/topics/none/configs", 404, 40403},
			{"/topics/none/configs/retention.ms", 404, 40403},
			{"/topics/none/partitions", 404, 40403},
			{"/topics/none/partitions/0", 404, 40403},
			{"/topics/orders/configs/none", 404, 404},
			{"/topics/orders/partitions/3", 404, 40402},
			{"/topics/orders/partitions/-1", 404, 40402},
			{"/topics/orders/partitions/x", 404, 404},
			{"/topics/orders/partitions/99999999999", 404, 404},
			{"/topics/orders/partitions/3/offset", 404, 40402},
			{"/topics/orders/partitions/3/replicas", 404, 40402},
			{"/topics/orders/partitions/0/replicas/7", 404, 404},
			{"/topics/orders/partitions/0/replicas/x", 404, 404},
			{"/topics/orders/partitions/0/offset?offset_type=latest", 400, 400},
			{"/topics/orders?include_authorized_operations=maybe", 400, 400},
			{"/topics/..%2f..%2fetc", 400, 40002},
			{"/topics/a%20b", 400, 40002},
			{"/topics/a%20b/configs", 400, 40002},
			{"/links", 404, 404},
			{"/topics/orders/default-configs", 404, 404},
		} {
			t.Run(c.path, func(t *testing.T) {
				f := *f
				f.t = t
				f.refused(f.call("GET", f.at(c.path), ""), c.status, c.code, "")
			})
		}
		f.refused(f.call("GET", f.at("/topics"), "", "Accept", "text/plain"), 406, 406, "")
		f.refused(f.call("PUT", f.at("/topics"), `{}`), 405, 405, "")
		for _, accept := range []string{"*/*", "application/*", "application/json;q=0.1", "text/html, application/json"} {
			require.Equal(t, 200, f.call("GET", f.at("/topics"), "", "Accept", accept).status, accept)
		}
	})
}

func TestPartitionsDescribeThemselves(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("GET", f.at("/topics/orders/partitions/1/offset?offset_type=earliest_and_latest"), "")
		require.Equal(t, 200, a.status)
		require.Equal(t, "KafkaPartitionWithOffsets", a.body["kind"])
		require.Equal(t, 0.0, a.body["earliest_offset"])
		require.Equal(t, 0.0, a.body["latest_offset"])

		a = f.call("GET", f.at("/topics/orders/partitions/1"), "")
		require.Equal(t, map[string]any{
			"self":          f.url + f.at("/topics/orders/partitions/1"),
			"resource_name": "crn:///kafka=" + f.id + "/topic=orders/partition=1",
		}, a.body["metadata"])
		leader := f.url + f.at("/topics/orders/partitions/1/replicas/{b}")
		require.Equal(t, map[string]any{"related": leader}, a.body["leader"])

		a = f.call("GET", f.at("/topics/orders/partitions/1/replicas/{b}"), "")
		require.Equal(t, true, a.body["is_leader"])
		require.Equal(t, true, a.body["is_in_sync"])
		require.Equal(t, map[string]any{"related": f.url + f.at("/brokers/{b}")}, a.body["broker"])

		a = f.call("GET", f.at("/brokers/{b}/partition-replicas"), "")
		require.Len(t, a.body["data"], 3)
	})
}

func TestTopicLifeCycle(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		create := `{"topic_name":"payments","partitions_count":2,"replication_factor":1,
		"configs":[{"name":"cleanup.policy","value":"compact"}]%s}`
		a := f.call("POST", f.at("/topics"), fmt.Sprintf(create, `,"validate_only":true`))
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, "payments", a.body["topic_name"])
		f.refused(f.call("GET", f.at("/topics/payments"), ""), 404, 40403, "")

		a = f.call("POST", f.at("/topics"), fmt.Sprintf(create, ""))
		require.Equal(t, 201, a.status, a.text)
		require.Equal(t, f.url+f.at("/topics/payments"), a.header.Get("Location"))
		require.Equal(t, 2.0, a.body["partitions_count"])
		require.Equal(t, 1.0, a.body["replication_factor"])
		got := f.call("GET", a.header.Get("Location"), "")
		require.Equal(t, a.body, got.body)
		require.Equal(t, "compact", f.call("GET", f.at("/topics/payments/configs/cleanup.policy"), "").body["value"])

		f.refused(f.call("POST", f.at("/topics"), fmt.Sprintf(create, "")), 400, 40002, "")

		a = f.call("PATCH", f.at("/topics/payments"), `{"partitions_count":5}`)
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, 5.0, a.body["partitions_count"])
		f.refused(f.call("PATCH", f.at("/topics/payments"), `{"partitions_count":1}`), 400, 40002, "")
		if f.cluster == nil {
			f.refused(f.call("PATCH", f.at("/topics/payments"), `{"partitions_count":5}`), 400, 40002, "")
		}
		f.refused(f.call("PATCH", f.at("/topics/none"), `{"partitions_count":5}`), 404, 40403, "")
		f.refused(f.call("PATCH", f.at("/topics/payments"), `{}`), 400, 400, "partitions_count")
		f.refused(f.call("PATCH", f.at("/topics/payments"), `null`), 422, 42206, "")

		a = f.call("DELETE", f.at("/topics/payments"), "")
		require.Equal(t, 204, a.status)
		require.Empty(t, a.text)
		f.refused(f.call("GET", f.at("/topics/payments"), ""), 404, 40403, "")
		f.refused(f.call("DELETE", f.at("/topics/payments"), ""), 404, 40403, "")
	})
}

func TestTopicListIsSorted(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("GET", f.at("/topics"), "")
		var names []string
		for _, d := range a.body["data"].([]any) {
			names = append(names, d.(map[string]any)["topic_name"].(string))
			require.Equal(t, []any{}, d.(map[string]any)["authorized_operations"])
		}
		require.Equal(t, []string{"ant", "orders", "zebra"}, names)
		for _, q := range []string{"include_authorized_operations", "includeAuthorizedOperations"} {
			require.Contains(t, f.call("GET", f.at("/topics?"+q+"=true"), "").text, `"DESCRIBE_CONFIGS"`)
		}
		require.Contains(t, f.call("GET", f.at("/topics/ant?include_authorized_operations=true"), "").text, `"READ"`)
	}, "zebra", "ant")
}

func TestCreateTopicRefuses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			name, body   string
			status, code int
			text         string
		}{
			{"empty", " ", 422, 42206, "empty"},
			{"null", "null", 422, 42206, "empty"},
			{"not JSON", "{", 400, 400, ""},
			{"text behind", `{"topic_name":"x"} {}`, 400, 400, ""},
			{"array", `[]`, 400, 400, ""},
			{"no name", `{"partitions_count":1}`, 400, 400, "topic_name"},
			{"null name", `{"topic_name":null}`, 400, 400, "topic_name"},
			{"number as name", `{"topic_name":1}`, 400, 400, "topic_name"},
			{"empty name", `{"topic_name":""}`, 422, 42206, "Payload error. Invalid topic name."},
			{"dots", `{"topic_name":".."}`, 422, 42206, "Invalid topic name"},
			{"slash", `{"topic_name":"a/b"}`, 422, 42206, "Invalid topic name"},
			{"250 characters", `{"topic_name":"` + strings.Repeat("t", 250) + `"}`, 422, 42206, "Invalid topic name"},
			{"unknown field", `{"topic_name":"x","partition_count":1}`, 422, 422, "Unrecognized field: partition_count"},
			{"unknown field within", `{"topic_name":"x","configs":[{"key":"a"}]}`, 422, 422, "Unrecognized field: "},
			{"other case", `{"TOPIC_NAME":"x"}`, 422, 422, "Unrecognized field: TOPIC_NAME"},
			{"twice", `{"topic_name":"x","topic_name":"y"}`, 400, 400, "topic_name"},
			{"text as number", `{"topic_name":"x","partitions_count":"1"}`, 400, 400, "partitions_count"},
			{"fraction", `{"topic_name":"x","partitions_count":1.5}`, 400, 400, "partitions_count"},
			{"too large a number", `{"topic_name":"x","partitions_count":4294967296}`, 400, 400, "partitions_count"},
			{"config twice",
				`{"topic_name":"x","configs":[{"name":"a","value":"1"},{"name":"a","value":"1"}]}`, 400, 400, "twice"},
			{"config without a name", `{"topic_name":"x","configs":[{"value":"1"}]}`, 400, 400, "name"},
			{"assignments of no partition", `{"topic_name":"x","replicas_assignments":{"a":[0]}}`, 400, 400, "partition number"},
			{"replication factor", `{"topic_name":"x","replication_factor":3}`, 400, 40002, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				f := *f
				f.t = t
				f.refused(f.call("POST", f.at("/topics"), c.body), c.status, c.code, c.text)
			})
		}
		if f.cluster == nil {
			a := f.call("POST", f.at("/topics"), `{"topic_name":"x","configs":[{"name":"no.such","value":"1"}]}`)
			f.refused(a, 400, 40002, "no.such")
		}
		a := f.call("POST", f.at("/topics"), `{"topic_name":"x"}`, "Content-Type", "text/plain")
		f.refused(a, 415, 415, "HTTP 415 Unsupported Media Type")
		a = f.call("POST", f.at("/topics"), `{"topic_name":"x"}`, "Content-Type", "application/json; charset=utf-8")
		require.Equal(t, 201, a.status)
	})
}

func TestAssignmentsOverrideCounts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("POST", f.at("/topics"), strings.ReplaceAll(
			`{"topic_name":"placed","partitions_count":9,"replication_factor":9,
			"replicas_assignments":{"0":[B],"1":[B],"2":[B]}}`, "B", f.broker))
		require.Equal(t, 201, a.status, a.text)
		require.Equal(t, 3.0, a.body["partitions_count"])
		require.Equal(t, 1.0, a.body["replication_factor"])
	})
}

func TestTopicConfigs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("GET", f.at("/topics/orders/configs"), "")
		require.Equal(t, 200, a.status)
		require.Equal(t, "KafkaTopicConfigList", a.body["kind"])
		var names []string
		for _, d := range a.body["data"].([]any) {
			names = append(names, d.(map[string]any)["name"].(string))
		}
		require.True(t, slices.IsSorted(names))
		require.Contains(t, names, "retention.ms")

		path := f.at("/topics/orders/configs/retention.ms")
		require.Equal(t, "DEFAULT_CONFIG", f.call("GET", path, "").body["source"])
		require.Equal(t, 204, f.call("PUT", path, `{"value":"3600000"}`).status)
		a = f.call("GET", path, "")
		require.Equal(t, "3600000", a.body["value"])
		require.Equal(t, "DYNAMIC_TOPIC_CONFIG", a.body["source"])
		require.Equal(t, false, a.body["is_default"])
		require.Equal(t, 204, f.call("DELETE", path, "").status)
		require.Equal(t, true, f.call("GET", path, "").body["is_default"])

		if f.cluster == nil {
			f.refused(f.call("PUT", path, `{"value":"never"}`), 400, 40002, "")
		}
		f.refused(f.call("PUT", path, `{"value":1}`), 400, 400, "value")
		f.refused(f.call("PUT", path, `{"values":"1"}`), 422, 422, "Unrecognized field: values")
		f.refused(f.call("PUT", path, ``, "Content-Type", "application/json"), 422, 42206, "")
		f.refused(f.call("PUT", f.at("/topics/orders/configs/none"), `{"value":"1"}`), 404, 404,
			"Config none cannot be found for TOPIC orders")
		f.refused(f.call("DELETE", f.at("/topics/orders/configs/none"), ""), 404, 404, "")
		f.refused(f.call("PUT", f.at("/topics/none/configs/retention.ms"), `{"value":"1"}`), 404, 40403, "")
	})
}

func TestAlterTopicConfigs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		alter := f.at("/topics/orders/configs:alter")
		value := func(name string) any { return f.call("GET", f.at("/topics/orders/configs/"+name), "").body["value"] }
		before := value("retention.ms")
		bad := `{"data":[{"name":"retention.bytes","value":"1"},{"name":"retention.ms","value":"x"}]}`
		body := `{"data":[{"name":"retention.ms","value":"60000"},{"name":"cleanup.policy","operation":"DELETE"}]%s}`

		a := f.call("POST", alter, fmt.Sprintf(body, `,"validate_only":true`))
		require.Equal(t, 204, a.status, a.text)
		require.Equal(t, before, value("retention.ms"), "a dry run leaves no trace")
		a = f.call("POST", alter, fmt.Sprintf(body, ""))
		require.Equal(t, 204, a.status, a.text)
		require.Empty(t, a.text)
		require.Equal(t, "60000", value("retention.ms"))

		for _, c := range []struct {
			body         string
			status, code int
		}{
			{`{"data":[{"name":"retention.ms","value":"1"},{"name":"none","value":"1"}]}`, 404, 404},
			{`{"data":[{"value":"1"}]}`, 400, 400},
			{`{"data":[{"name":"retention.ms","operation":"APPEND","value":"1"}]}`, 400, 400},
			{`{}`, 400, 400},
			{`{"data":1}`, 400, 400},
			{`null`, 422, 42206},
			{`{"data":[],"dry":true}`, 422, 422},
		} {
			f.refused(f.call("POST", alter, c.body), c.status, c.code, "")
			require.Equal(t, "60000", value("retention.ms"), c.body)
		}
		if f.cluster == nil {
			f.refused(f.call("POST", alter, bad), 400, 40002, "retention.ms")
			require.Equal(t, "-1", value("retention.bytes"))
		}
		require.Equal(t, 204, f.call("POST", alter, `{"data":[]}`).status)
		f.refused(f.call("POST", f.at("/topics/none/configs:alter"), `{"data":[{"name":"retention.ms","value":"1"}]}`),
			404, 40403, "")
	})
}

func TestAlterConfigsOfManyTopics(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		alter := f.at("/topics/-/configs:alter")
		value := func(topic string) any {
			return f.call("GET", f.at("/topics/"+topic+"/configs/retention.ms"), "").body["value"]
		}
		body := func(orders, payments string) string {
			return `{"data":[{"topic_name":"orders","configs":[{"name":"retention.ms","value":"` + orders + `"}]},
			{"topic_name":"payments","configs":[{"name":"retention.ms","value":"` + payments + `"}]}]}`
		}
		require.Equal(t, 204, f.call("POST", alter, body("1000", "2000")).status)
		require.Equal(t, "1000", value("orders"))
		require.Equal(t, "2000", value("payments"))

		if f.cluster == nil {
			a := f.call("POST", alter, body("3000", "never"))
			require.Equal(t, 207, a.status, a.text)
			failures := a.body["failures"].([]any)
			require.Len(t, failures, 1)
			require.Equal(t, "payments", failures[0].(map[string]any)["topic_name"])
			require.Equal(t, 40002.0, failures[0].(map[string]any)["error_code"])
		}
		require.Equal(t, 204, f.call("POST", alter, body("3000", "2000")).status)

		f.refused(f.call("POST", alter, strings.Replace(body("1", "2"), "payments", "none", 1)), 404, 40403, "")
		f.refused(f.call("POST", alter, strings.Replace(body("1", "2"), "retention.ms", "none", 1)), 404, 404, "")
		f.refused(f.call("POST", alter, strings.Replace(body("1", "2"), "payments", "orders", 1)), 400, 400, "twice")
		require.Equal(t, "3000", value("orders"))
		require.Equal(t, 204, f.call("POST", alter, `{"data":[]}`).status)
	}, "payments")
}

func TestBrokerConfigs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("GET", f.at("/brokers/{b}/configs"), "")
		require.Equal(t, "KafkaBrokerConfigList", a.body["kind"])
		require.Equal(t, a.body["data"], f.call("GET", f.at("/brokers/-/configs"), "").body["data"])
		path := f.at("/brokers/{b}/configs/message.max.bytes")
		a = f.call("GET", path, "")
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, f.broker, fmt.Sprint(a.body["broker_id"]))
		require.Equal(t, 204, f.call("PUT", path, `{"value":"2000000"}`).status)
		require.Equal(t, "2000000", f.call("GET", path, "").body["value"])
		require.Equal(t, 204, f.call("POST", f.at("/brokers/{b}/configs:alter"),
			`{"data":[{"name":"message.max.bytes","operation":"DELETE"}]}`).status)
		require.NotEqual(t, "2000000", f.call("GET", path, "").body["value"])
		if f.cluster != nil {
			secret := f.call("GET", f.at("/brokers/{b}/configs/super.users"), "")
			require.Equal(t, nil, secret.body["value"], "a secret is not told")
		}
		for _, c := range [][2]string{{"PUT", path}, {"POST", f.at("/brokers/{b}/configs:alter")}} {
			other := strings.Replace(c[1], "/"+f.broker+"/", "/7/", 1)
			f.refused(f.call(c[0], other, `{"value":"1"}`), 404, 404, "Broker 7 cannot be found")
		}
		f.refused(f.call("DELETE", f.at("/brokers/{b}/configs/none"), ""), 404, 404, "")
	})
}

func TestClusterConfigs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		require.Empty(t, f.call("GET", f.at("/broker-configs"), "").body["data"])
		path := f.at("/broker-configs/message.max.bytes")
		f.refused(f.call("DELETE", path, ""), 404, 404, "")
		require.Equal(t, 204, f.call("PUT", path, `{"value":"2000000"}`).status)
		a := f.call("GET", path, "")
		require.Equal(t, "KafkaClusterConfig", a.body["kind"])
		require.Equal(t, "BROKER", a.body["config_type"])
		require.Equal(t, "2000000", a.body["value"])
		require.Len(t, f.call("GET", f.at("/broker-configs"), "").body["data"], 1)
		require.Equal(t, 204, f.call("POST", f.at("/broker-configs:alter"),
			`{"data":[{"name":"message.max.bytes","operation":"DELETE"}]}`).status)
		require.Empty(t, f.call("GET", f.at("/broker-configs"), "").body["data"])
		reset := `{"data":[{"name":"none","operation":"DELETE"}]}`
		f.refused(f.call("POST", f.at("/broker-configs:alter"), reset), 404, 404, "")
	})
}
