//! Error codes of ingestions and retrieval.

hivekeep_kernel::codes! {
    /// Nothing is configured that makes embeddings.
    EMBEDDER_NOT_CONFIGURED = "embedder_not_configured" {
        cause: "Neither `ingest.local.folder` nor a model for `ingest.model` is set.",
        next: "The operator sets `model.alias.embed.models` with a model that embeds, or `ingest.local.folder`.",
    }
    /// The embedding model does not answer as it should.
    EMBEDDER_FAILED = "embedder_failed" {
        cause: "The folder of the local model is not readable, or its vectors are not numbers.",
        next: "`hivekeep check` says what is wrong with the folder; repeat the call.",
    }
    /// The collection was made with another embedding model.
    EMBEDDER_MISMATCH = "embedder_mismatch" {
        cause: "Vectors of different models, or of different lengths, cannot be compared.",
        next: "Use the model that the collection names, or ingest with `recreate` true.",
    }
    /// There is no collection of that name.
    COLLECTION_NOT_FOUND = "collection_not_found" {
        cause: "The name is wrong, or nothing was ingested into it yet.",
        next: "`rag_collections` lists what there is; `rag_ingest` makes one.",
    }
    /// The user has as many collections as may be.
    TOO_MANY_COLLECTIONS = "too_many_collections" {
        cause: "`ingest.max_collections` is reached.",
        next: "Ingest into a collection that is there.",
    }
    /// The collection is being written.
    INGESTION_RUNNING = "ingestion_running" {
        cause: "Another ingestion writes this collection; one does at a time.",
        next: "`rag_collections` with `show_stats` shows how far it is; repeat the call when it is over.",
    }
    /// There is nothing to ingest.
    NOTHING_TO_INGEST = "nothing_to_ingest" {
        cause: "The folder has no file that can be read, or ignores all of them.",
        next: "Check the path; `fs.glob` lists what is there.",
    }
    /// There is too much to ingest.
    INGESTION_TOO_LARGE = "ingestion_too_large" {
        cause: "The folder has more files than `ingest.max_files`, or more passages than `ingest.max_chunks`.",
        next: "Ingest a smaller folder, or ask the operator for a higher bound.",
    }
    /// The path cannot be ingested.
    INGESTION_PATH_REFUSED = "ingestion_path_refused" {
        cause: "It does not exist, leads out of its place, or is neither a file nor a folder.",
        next: "Check the path; `fs.list` shows what is there.",
    }
    /// Several collections have this name.
    COLLECTION_AMBIGUOUS = "collection_ambiguous" {
        cause: "Several users gave a collection of this name to workspaces of yours.",
        next: "Name it by its id; `rag_collections` shows it.",
    }
    /// The collection is given to as many workspaces as may be.
    TOO_MANY_READERS = "too_many_readers" {
        cause: "A collection can be given to 256 workspaces at a time.",
        next: "Take it back from workspaces that are gone.",
    }
    /// The collection is being removed.
    COLLECTION_DELETING = "collection_deleting" {
        cause: "It was deleted, and its passages are not gone yet.",
        next: "Repeat the call; `rag_delete` says what keeps them.",
    }
    /// The ingestion stopped before its end.
    INGESTION_FAILED = "ingestion_failed" {
        cause: "Embeddings or the store failed, also after repetitions; the message says how.",
        next: "Repeat the call: what is done is not embedded again.",
    }
    /// The vector store does not answer as it should.
    VECTOR_STORE_FAILED = "vector_store_failed" {
        cause: "The Qdrant server is away or refuses the request, or the files of the collection cannot be used.",
        next: "Check `ingest.qdrant` and the server, or the disk; then repeat the call.",
    }
}
