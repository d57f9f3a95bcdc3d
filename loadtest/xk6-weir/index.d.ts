/**
 * k6/x/weir: clients of virtual regions, key generators, and an oracle that judges a rate
 * limiter's answers. See README.md.
 */
declare module 'k6/x/weir' {
  /** A number with a unit, such as "250ms", "10s" or "1h30m". */
  export type Duration = string;

  export interface Pop {
    region?: string;
    pop?: string;
  }

  export interface ClientOptions {
    /** The virtual region: the tag `region` of the client's HTTP metrics. */
    region?: string;
    /** host:port of the DNS server to query. Without it k6 resolves names. */
    dns?: string;
    /** The network that the client claims (EDNS client subnet). Needs `dns`. */
    subnet?: string;
    /** Ask for AAAA instead of A. */
    ipv6?: boolean;
    /** Offer HTTP/2 over TLS (ALPN); default false. The response's `proto` tells the choice. */
    http2?: boolean;
    /**
     * The region and PoP behind each address ("192.0.2.1" or "192.0.2.1:8080"). If set, a
     * request with `limits` to any other address fails without being sent.
     */
    pops?: Record<string, Pop>;
    /** Timeout of a whole request; default "30s". */
    timeout?: Duration;
    /** Timeout for connecting to one address; default "3s". */
    connectTimeout?: Duration;
    /** Timeout of one DNS query, of which there are two at most; default "2s". */
    dnsTimeout?: Duration;
    /** An idle connection is closed after this time; default "90s". */
    idleTimeout?: Duration;
  }

  export interface Params {
    headers?: Record<string, string>;
    tags?: Record<string, string>;
    timeout?: Duration;
    /**
     * The key under which each declared rule counts this request, for the oracle. If a rule's
     * key is only the client's address or network, give the address.
     */
    limits?: Record<string, string | { key: string; cost?: number }>;
    /** Statuses that count as success; default 200 to 399, and 429. */
    expected?: number[];
  }

  /** What a response says about one rule. -1: not stated. */
  export interface RateLimit {
    rule: string;
    limit: number;
    /** Seconds. */
    window: number;
    remaining: number;
    /** Seconds until the whole limit is free. */
    reset: number;
  }

  export interface Response {
    /** 0: there was no answer; see `error`. */
    status: number;
    headers: Record<string, string>;
    body: string;
    error: string;
    /** The PoP that answered. */
    region: string;
    pop: string;
    address: string;
    /** The protocol, such as "HTTP/2.0"; '' without an answer. */
    proto: string;
    /** Milliseconds, as k6's http_req_duration. */
    duration: number;
    /** Refused by a rule of the edge. */
    limited: boolean;
    /** 503. */
    shed: boolean;
    /** The rules that refused. */
    violated: string[];
    rateLimit: RateLimit[];
    /** What is wrong with the RateLimit headers; '' if nothing is. */
    rateLimitError: string;
    /** Seconds; -1: not stated, which the oracle treats as 0. */
    retryAfter: number;
  }

  export class Client {
    constructor(options?: ClientOptions);
    get(url: string, params?: Params): Response;
    post(url: string, body?: string | null, params?: Params): Response;
    request(method: string, url: string, body?: string | null, params?: Params): Response;
    /** Closes idle connections. */
    close(): void;
  }

  export interface CommonKeys {
    /** The same seed gives the same keys; default 0. */
    seed?: number;
    /** Distinguishes generators with the same seed; default the VU's number. */
    stream?: number;
    /** The number of keys; default 10000. */
    n?: number;
    /** Prefix of the keys; default "key-". */
    prefix?: string;
    /** Use addresses of this network as keys instead. */
    cidr?: string;
  }

  export type KeysOptions = CommonKeys &
    (
      | { kind: 'uniform' }
      | { kind: 'zipf'; exponent?: number }
      | {
          kind: 'flash_crowd';
          exponent?: number;
          start?: Duration;
          ramp?: Duration;
          hold?: Duration;
          decay?: Duration;
          /** The number of hot keys; default 1. */
          hot?: number;
          /** Their share of the requests at the peak; default 0.9. */
          peak?: number;
          /** The traffic at the peak, as a multiple of the usual; default 5. */
          surge?: number;
        }
      | { kind: 'scanner'; vary?: 'key' | 'path' }
      | {
          kind: 'retrying_bot';
          policy?: 'obey' | 'early' | 'backoff' | 'ignore';
          /** The share of Retry-After that `early` waits; default 0.5. */
          early?: number;
          /** The first wait of `backoff`; default "100ms". */
          base?: Duration;
          /** The longest wait of `backoff`; default "30s". */
          max?: Duration;
        }
      | {
          kind: 'diurnal';
          exponent?: number;
          /** The length of a day; default "24h". */
          day?: Duration;
          /** The busiest hour, 0 to 24; default 20. */
          peakHour?: number;
          /** People's traffic at the quietest hour; default 0.2. */
          low?: number;
          /** The share of usual traffic without a daily rhythm; default 0.1. */
          bots?: number;
        }
      | {
          kind: 'replay';
          /** The text of the log: open('./access.log'). */
          log: string;
          /** Speed of the replay; default 1. */
          speed?: number;
        }
    );

  export interface Turn {
    key: string;
    kind: string;
    path: string;
    method: string;
    /** Seconds until the request is due. */
    wait: number;
    /** Nothing is left to replay. */
    done: boolean;
  }

  export class Keys {
    constructor(options: KeysOptions);
    /** @param at seconds since the load began; default now. */
    next(at?: number): Turn;
    /** Tells a retrying bot the outcome. */
    answered(status: number, retryAfterSeconds: number): void;
    /** The traffic, as a multiple of the usual. */
    intensity(at?: number): number;
    /** Stages of an executor that ramps its rate. */
    stages(rate: number, duration: Duration, steps: number): { target: number; duration: string }[];
  }

  export interface OracleOptions {
    /** The keys were never used before; default false. */
    fresh?: boolean;
    /** The largest difference between this clock and the limiter's; default "1ms", also for "0s". */
    clockError?: Duration;
    /** How long after the client gave up a request may still be charged; default "60s". */
    late?: Duration;
    /** How long after its answer a concurrency slot may be held; default "1s". */
    release?: Duration;
    /** How much too short a Retry-After may be; default "25ms". */
    retrySlack?: Duration;
    /** Keys to remember; default 200000. */
    maxKeys?: number;
    /** Requests to remember per key, at least twice the largest limit; default 100000. */
    maxRequests?: number;
  }

  /**
   * A rule as in a rule document, without `tiers` and without a header as `cost`. Fields
   * that do not affect the count are ignored.
   */
  export interface Rule {
    id: string;
    /** The edge's name for it, if not `id`: for a tier's limit, the id of its rule. */
    as?: string;
    key?: string[];
    algorithm?: 'fixed_window' | 'sliding_window' | 'token_bucket' | 'leaky_bucket' | 'rolling_window' | 'concurrency';
    limit: number;
    window: Duration;
    burst?: number;
    min_interval?: Duration;
    count_denied?: boolean;
    cost?: number;
    /** concurrency: the shortest time that a request is known to keep its slot. */
    hold?: Duration;
    description?: string;
    /** The oracle uses only `not`: requests that it exempts are not judged. */
    match?: { not?: object; [part: string]: unknown };
    storage?: 'ring' | 'sorted_set';
    missing?: 'skip' | 'limit';
    mode?: 'enforce' | 'shadow' | 'off';
    on_store_failure?: 'local' | 'open' | 'closed';
    /** The refusals of a leased or reported rule are not judged: nodes may refuse early. */
    consistency?: 'strict' | 'leased' | 'reported';
    /** global: all regions are judged together, as `everywhere`. Refusals are not judged: a region may refuse early. */
    scope?: 'region' | 'global';
    global?: object;
    /** Not of a rule document; reported only: for how long what nodes are asked for may pass over the limit. */
    delay?: Duration;
    /** Likewise: how many nodes share the limit. Each may pass two requests more. */
    nodes?: number;
  }

  export interface ReportLine {
    /** The region that decided. */
    region: string;
    rule: string;
    phase: string;
    admitted: number;
    refused: number;
    unknown: number;
    /** Refusals that may be due to requests from before the oracle knew the key. */
    unjudged: number;
    overadmitted: number;
    wronglyRefused: number;
    retryChecked: number;
    retryWrong: number;
    retryWorstSeconds: number;
    /** The window exceeded most; absent if none was. */
    worst?: { key: string; at: string; excess: number; limit: number; window: string; percent: number };
  }

  export interface Oracle {
    /** Declares a rule; in the init context. */
    rule(rule: Rule): void;
    /** Announces that a rule changes now. It is not judged until `settle` has passed; default "5s". */
    replace(rule: Rule, settle?: Duration): void;
    /** Names the part of the test that begins now: the tag `phase` of the verdicts. */
    phase(name: string): void;
    /** Judges what remains; call it in teardown(). */
    finish(): void;
    report(): ReportLine[];
  }

  /** The oracle of this k6 process. Options are given once, in the init context. */
  export function oracle(options?: OracleOptions): Oracle;

  export interface BehaviorOptions {
    /** A `name` of behaviorKinds(). */
    kind: string;
    /** Which subject of the kind; default 0. */
    n?: number;
    /** Any text. Each text gives another subject, none of which was used to choose a policy. */
    heldOut?: string;
    /** The IPv4 network of the kind's clients. */
    cidr: string;
  }

  export interface BehaviorTurn {
    /** Seconds until the request is due, from the last answer. */
    wait: number;
    /** The client's address. */
    client: string;
    path: string;
    /** The origin must answer with the status in X-Behavior-Status. */
    headers: Record<string, string>;
  }

  /** One subject, benign or hostile, of the corpus that behavior policies are judged on. */
  export class Behavior {
    constructor(options: BehaviorOptions);
    next(): BehaviorTurn;
    /** Tells the subject the outcome, on which its next request may depend. */
    answered(status: number, retryAfterSeconds: number): void;
  }

  export interface BehaviorKind {
    name: string;
    hostile: boolean;
    /** Seconds in which a hostile subject must be detected, if not within 200 requests. */
    within: number;
    /** How many addresses act together. */
    clients: number;
    /** false: it stays below the thresholds, and is only reported. */
    goal: boolean;
  }

  export function behaviorKinds(): BehaviorKind[];

  const weir: { Client: typeof Client; Keys: typeof Keys; Behavior: typeof Behavior; behaviorKinds: typeof behaviorKinds; oracle: typeof oracle };
  export default weir;
}
