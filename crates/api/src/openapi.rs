//! The API as an OpenAPI 3.1 document, made from the shapes of this crate.
//!
//! Invariant: the document has the routes of the table in the crate's documentation, no more and no
//! fewer; the gateway has a test that each of them is served.

use std::collections::BTreeMap;

use snowmelt_types::ErrorReport;
use snowmelt_wire::{CsvOption, TypedText};
use utoipa::ToSchema;
use utoipa::openapi::content::{Content, ContentBuilder};
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Paths, Ref, RefOr, Required,
    ResponseBuilder, Schema,
};

use crate::{
    Backup, BatchRequest, BurstAnswer, BurstCalls, BurstRequest, BurstStatus, ConversionRequest,
    DifferenceRequest, Figures, FilesRequest, FunctionSpec, FunctionSummary, HostSummary,
    ImageDetail, ImageEvent, ImageRequest, ImageSummary, ImageTree, Invocation, InvokeRequest,
    JoinTokenMade, JoinTokenRequest, KeyRequest, KeyRotation, KeySummary, LogEntry, LoginOffer,
    MadeKey, MissingFiles, NetworkDetail, NetworkSummary, PackRequest, Packed, PlatformKey,
    PlatformPruneRequest, PruneRequest, Pruned, PrunedPart, PullRequest, PushRequest, QueryRequest,
    QuotaHolder, QuotaKind, QuotaLimit, QuotaRequest, QuotaSummary, QuotaUse, RegisterRequest,
    ShutdownRequest, Status, TENANT_HEADER, Trace, TraceRequest, UdfLogEntry, UdfSummary,
    WarmRequest, Wheel,
};

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// Returns the document for a platform of this version.
pub fn document(version: &str) -> OpenApi {
    let mut paths = Paths::default();
    let mut schemas = BTreeMap::new();
    let routes =
        [platform(), keys(), quotas(), queries(), udfs(), functions(), calls(), bursts(), images()];
    for route in routes.into_iter().flatten() {
        let item = PathItem::new(route.method, route.operation);
        match paths.paths.get_mut(route.path) {
            Some(path) => path.merge_operations(item),
            None => drop(paths.paths.insert(route.path.to_owned(), item)),
        }
        schemas.extend(route.schemas);
    }
    let info = InfoBuilder::new()
        .title("Snowmelt")
        .version(version)
        .description(Some("The API of a platform, over HTTP on its unix socket."));
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(ComponentsBuilder::new().schemas_from_iter(schemas).build()))
        .build()
}

fn platform() -> Vec<ApiRoute> {
    vec![
        get("/healthz", "Whether the server lives").answers_bytes("text/plain", "`ok`"),
        get("/readyz", "Whether it can take work, else 503 with why not")
            .answers_bytes("text/plain", "`ready`"),
        get("/v1/status", "What runs on the platform").answers::<Status>(200),
        get("/v1/figures", "What the platform counts").answers::<Figures>(200),
        get("/metrics", "The same for Prometheus")
            .answers_bytes("text/plain", "Metrics in the text format of Prometheus"),
        post("/v1/shutdown", "Ends the server after a grace time")
            .may_take::<ShutdownRequest>()
            .answers_nothing(202),
        post("/v1/backups", "Copies the state of the platform, into its state folder")
            .answers::<Backup>(201),
        post("/v1/prunings", "Removes what nothing uses: of the tenant, for operators of all")
            .takes::<PlatformPruneRequest>()
            .answers_list::<PrunedPart>(),
        get("/openapi.json", "This document").answers_bytes(JSON, "An OpenAPI document"),
        get("/v1/hosts", "Hosts of the cluster").answers_list::<HostSummary>(),
        post("/v1/hosts/{host}/drain", "Has a host get no new work; what runs there goes on")
            .answers_nothing(204),
        delete("/v1/hosts/{host}/drain", "Has a host get new work again").answers_nothing(204),
        delete("/v1/hosts/{host}", "Removes a host from the cluster, whatever runs there")
            .answers_nothing(204),
        post("/v1/join-tokens", "Makes a token with which one host joins; it is shown this once")
            .takes::<JoinTokenRequest>()
            .answers::<JoinTokenMade>(201),
        get("/v1/trees", "Images that spread through trees of hosts, of a function or all")
            .query("of", Type::String)
            .answers_list::<ImageTree>(),
    ]
}

fn keys() -> Vec<ApiRoute> {
    vec![
        post("/v1/keys", "Makes a key of the tenant; its text is shown this once")
            .takes::<KeyRequest>()
            .answers::<MadeKey>(201),
        get("/v1/keys", "Keys of the tenant, for operators of all").answers_list::<KeySummary>(),
        delete("/v1/keys/{id}", "Revokes a key, and ends what it runs").answers_nothing(204),
        post("/v1/keys/{id}/rotations", "Makes a key in the place of another, which ends later")
            .may_take::<KeyRotation>()
            .answers::<MadeKey>(201),
        get("/v1/login", "Where people log in; needs no key").answers::<LoginOffer>(200),
    ]
}

fn quotas() -> Vec<ApiRoute> {
    vec![
        get("/v1/quotas", "Quotas of the tenant and what is used, for operators of all")
            .refers::<QuotaKind>()
            .refers::<QuotaUse>()
            .refers::<QuotaHolder>()
            .answers_list::<QuotaSummary>(),
        post("/v1/quotas", "Sets quotas of a tenant; for operators")
            .refers::<QuotaLimit>()
            .takes::<QuotaRequest>()
            .answers::<QuotaSummary>(200),
        delete("/v1/quotas", "Gives a tenant the default quotas again; for operators")
            .answers_nothing(204),
    ]
}

fn queries() -> Vec<ApiRoute> {
    vec![
        post("/v1/queries", "Runs a query; closing the connection cancels it")
            .takes::<QueryRequest>()
            .refers::<TypedText>()
            .refers::<CsvOption>()
            .answers_bytes(
                "application/vnd.snowmelt.frames",
                "Frames: events, then a schema, batches and a profile, or a failure",
            ),
    ]
}

fn udfs() -> Vec<ApiRoute> {
    vec![
        get("/v1/udfs", "Registered UDFs").answers_list::<UdfSummary>(),
        post("/v1/udfs", "Registers the UDFs that a piece of code defines")
            .takes::<RegisterRequest>()
            .answers_list::<UdfSummary>(),
        get("/v1/udfs/{name}", "A registered UDF").answers::<UdfSummary>(200),
        delete("/v1/udfs/{name}", "Removes a UDF with all its versions").answers_nothing(204),
        get("/v1/udfs/{name}/log", "The last lines that instances of a UDF wrote")
            .query("tail", Type::Integer)
            .answers_list::<UdfLogEntry>(),
        post("/v1/files", "Which files of UDFs have to be sent")
            .takes::<FilesRequest>()
            .answers::<MissingFiles>(200),
        post("/v1/files/{digest}", "Keeps the content of a file of UDFs")
            .takes_bytes()
            .answers_nothing(204),
        get(
            "/v1/leases",
            "Leaves HTTP (`upgrade: snowmelt`) for a lease of an instance, in frames",
        )
        .answers_nothing(101),
    ]
}

fn functions() -> Vec<ApiRoute> {
    vec![
        get("/v1/functions", "Deployed functions").answers_list::<FunctionSummary>(),
        post("/v1/functions", "Deploys a function, or replaces it")
            .takes::<FunctionSpec>()
            .answers::<FunctionSummary>(201),
        get("/v1/functions/{name}", "A deployed function").answers::<FunctionSummary>(200),
        delete("/v1/functions/{name}", "Removes a function").answers_nothing(204),
        post("/v1/packages", "Makes a code package").takes::<PackRequest>().answers::<Packed>(201),
        post("/v1/wheels/{file}", "Uploads a wheel").takes_bytes().answers::<Wheel>(201),
        get("/v1/functions/{name}/logs", "What invocations wrote")
            .query("invocation", Type::String)
            .query("tail", Type::Integer)
            .answers_list::<LogEntry>(),
    ]
}

fn calls() -> Vec<ApiRoute> {
    vec![
        post("/v1/functions/{name}/invocations", "Calls a function")
            .takes::<InvokeRequest>()
            .answers::<Invocation>(200)
            .answers::<Invocation>(202),
        post("/v1/functions/{name}/batches", "Calls a function for each event")
            .takes::<BatchRequest>()
            .answers_list::<Invocation>(),
        get("/v1/invocations/{id}", "An asynchronous call").answers::<Invocation>(200),
    ]
}

fn bursts() -> Vec<ApiRoute> {
    vec![
        post("/v1/bursts", "Runs a function once for each event, all at once")
            .takes::<BurstRequest>()
            .answers::<BurstAnswer>(200)
            .answers::<BurstStatus>(202),
        post("/v1/functions/{name}/bursts", "Runs a deployed function as a burst")
            .takes::<BurstCalls>()
            .answers::<BurstAnswer>(200)
            .answers::<BurstStatus>(202),
        get("/v1/bursts", "Bursts that run, or whose outcomes are kept")
            .answers_list::<BurstStatus>(),
        get("/v1/bursts/{job}", "How far a burst is").answers::<BurstStatus>(200),
        delete("/v1/bursts/{job}", "Ends a burst, or forgets its outcome").answers_nothing(204),
        get("/v1/bursts/{job}/answer", "Waits for the answer of a burst")
            .answers::<BurstAnswer>(200),
        get("/v1/networks", "Networks of jobs").answers_list::<NetworkSummary>(),
        get("/v1/networks/{job}", "The network of a job").answers::<NetworkDetail>(200),
        post("/v1/networks/{job}/trace", "The route between two functions")
            .takes::<TraceRequest>()
            .answers::<Trace>(200),
    ]
}

fn images() -> Vec<ApiRoute> {
    vec![
        get("/v1/images", "Local images").answers_list::<ImageSummary>(),
        delete("/v1/images/{image}", "Removes the name of an image; for operators")
            .answers_nothing(204),
        get("/v1/images/key", "The key with which others verify start profiles")
            .answers::<PlatformKey>(200),
        post("/v1/images/details", "An image, its blobs and its configuration")
            .takes::<ImageRequest>()
            .answers::<ImageDetail>(200),
        post("/v1/images/conversions", "Converts an image of a registry, or one that is sent")
            .refers::<ConversionRequest>()
            .takes_bytes()
            .answers_events(),
        post("/v1/images/pulls", "Fetches an image from a registry")
            .takes::<PullRequest>()
            .answers_events(),
        post("/v1/images/pushes", "Sends a local image to a registry")
            .takes::<PushRequest>()
            .answers_events(),
        post("/v1/images/prefetches", "Fetches blocks of an image into the cache")
            .takes::<WarmRequest>()
            .answers_events(),
        post("/v1/images/verifications", "Compares every block with its digest")
            .takes::<ImageRequest>()
            .answers_events(),
        post("/v1/images/comparisons", "Compares two images")
            .takes::<DifferenceRequest>()
            .answers_events(),
        post("/v1/images/prunings", "Removes unreferenced data; for operators")
            .takes::<PruneRequest>()
            .answers::<Pruned>(200),
    ]
}

/// An operation on a path, with the shapes that it refers to.
struct ApiRoute {
    method: HttpMethod,
    path: &'static str,
    operation: Operation,
    schemas: Vec<(String, RefOr<Schema>)>,
}

fn get(path: &'static str, summary: &str) -> ApiRoute {
    ApiRoute::new(HttpMethod::Get, path, summary)
}

fn post(path: &'static str, summary: &str) -> ApiRoute {
    ApiRoute::new(HttpMethod::Post, path, summary)
}

fn delete(path: &'static str, summary: &str) -> ApiRoute {
    ApiRoute::new(HttpMethod::Delete, path, summary)
}

impl ApiRoute {
    fn new(method: HttpMethod, path: &'static str, summary: &str) -> Self {
        let mut operation = OperationBuilder::new().summary(Some(summary)).parameter(parameter(
            TENANT_HEADER,
            ParameterIn::Header,
            Type::String,
        ));
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            operation = operation.parameter(parameter(name, ParameterIn::Path, Type::String));
        }
        let mut route = Self { method, path, operation: operation.build(), schemas: Vec::new() };
        let problem = route.refer::<ErrorReport>();
        route.respond(
            "default",
            "An error, as a problem document (RFC 9457)",
            Some(("application/problem+json", problem)),
        )
    }

    /// Returns a reference to a shape, which becomes part of the document with all that it refers
    /// to.
    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        Ref::from_schema_name(T::name()).into()
    }

    /// Adds a shape that is part of a body of bytes.
    fn refers<T: ToSchema>(mut self) -> Self {
        self.refer::<T>();
        self
    }

    fn query(mut self, name: &str, kind: Type) -> Self {
        let parameters = self.operation.parameters.get_or_insert_default();
        parameters.push(parameter(name, ParameterIn::Query, kind));
        self
    }

    fn takes<T: ToSchema>(mut self) -> Self {
        let schema = self.refer::<T>();
        self.body(JSON, schema, Required::True)
    }

    fn may_take<T: ToSchema>(mut self) -> Self {
        let schema = self.refer::<T>();
        self.body(JSON, schema, Required::False)
    }

    fn takes_bytes(self) -> Self {
        self.body(BYTES, bytes(), Required::True)
    }

    fn body(mut self, kind: &str, schema: RefOr<Schema>, required: Required) -> Self {
        let body = RequestBodyBuilder::new().content(kind, content(schema));
        self.operation.request_body = Some(body.required(Some(required)).build());
        self
    }

    fn answers<T: ToSchema>(mut self, status: u16) -> Self {
        let schema = self.refer::<T>();
        self.respond(&status.to_string(), &described::<T>(), Some((JSON, schema)))
    }

    fn answers_list<T: ToSchema>(mut self) -> Self {
        let items = self.refer::<T>();
        let list = Schema::Array(ArrayBuilder::new().items(items).build());
        self.respond("200", &format!("A list of {}", T::name()), Some((JSON, list.into())))
    }

    fn answers_bytes(self, kind: &str, description: &str) -> Self {
        self.respond("200", description, Some((kind, bytes())))
    }

    /// Answers with lines of JSON, each sent as it happens; closing the connection cancels the
    /// work.
    fn answers_events(self) -> Self {
        self.refers::<ImageEvent>()
            .answers_bytes("application/x-ndjson", "Lines of ImageEvent; the last is the result")
    }

    fn answers_nothing(self, status: u16) -> Self {
        self.respond(&status.to_string(), "Done; the answer has no body", None)
    }

    fn respond(
        mut self,
        status: &str,
        description: &str,
        body: Option<(&str, RefOr<Schema>)>,
    ) -> Self {
        let mut response = ResponseBuilder::new().description(description);
        if let Some((kind, schema)) = body {
            response = response.content(kind, content(schema));
        }
        let responses = &mut self.operation.responses.responses;
        responses.insert(status.to_owned(), response.build().into());
        self
    }
}

/// The first line of a type's doc, which its schema has as description; its name, if it has none.
fn described<T: ToSchema>() -> String {
    let description = match T::schema() {
        RefOr::T(Schema::Object(object)) => object.description,
        RefOr::T(Schema::OneOf(one)) => one.description,
        _ => None,
    };
    let first = description.and_then(|text| text.lines().next().map(str::to_owned));
    first.unwrap_or_else(|| T::name().into_owned())
}

fn content(schema: RefOr<Schema>) -> Content {
    ContentBuilder::new().schema(Some(schema)).build()
}

fn bytes() -> RefOr<Schema> {
    let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
    Schema::Object(ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).build())
        .into()
}

fn parameter(name: &str, place: ParameterIn, kind: Type) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    let schema = Schema::Object(ObjectBuilder::new().schema_type(kind).build());
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .schema(Some(schema))
        .build()
}
