//! The parameters of a random workload. Plain data.

/// Frequencies and sizes of operations.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::tests) struct Mix {
    /// Steps in a thousand that make or drop a keyspace.
    pub(in crate::engine::tests) names: u64,
    /// One of the keyspaces may be hashed.
    pub(in crate::engine::tests) hashed: bool,
    /// Steps in a thousand that change settings.
    pub(in crate::engine::tests) settings: u64,
    /// Steps in a thousand that request a merge of everything into one run.
    pub(in crate::engine::tests) compacts: u64,
    /// Steps in a thousand that rewrite the manifest.
    pub(in crate::engine::tests) rewrites: u64,
    /// Steps in a thousand that begin an ingest.
    pub(in crate::engine::tests) ingests: u64,
    /// Steps in a thousand that are turns of an ingest.
    pub(in crate::engine::tests) ingest_turns: u64,
    /// Steps in a thousand that begin a checkpoint.
    pub(in crate::engine::tests) copies: u64,
    /// Steps in a thousand that are turns of background work. All other steps drive a writer.
    pub(in crate::engine::tests) turns: u64,
    pub(in crate::engine::tests) writers_count: usize,
    pub(in crate::engine::tests) keys_count: u64,
    pub(in crate::engine::tests) value_bytes: usize,
    /// One value in this many is large; 0: none.
    pub(in crate::engine::tests) large_one_in: u64,
    pub(in crate::engine::tests) large_bytes: usize,
    /// Writes in ten that must be durable.
    pub(in crate::engine::tests) synced_tenths: u64,
    /// Most items of the larger batches; at least 2.
    pub(in crate::engine::tests) items_max: u64,
    /// Items in six, after the first of a batch, that delete a key.
    pub(in crate::engine::tests) deletes: u64,
    /// Items in six, after the first of a batch, that delete a range.
    pub(in crate::engine::tests) ranges: u64,
    /// Settings of new keyspaces; if empty, some are drawn at random.
    pub(in crate::engine::tests) given: &'static [(&'static str, u64)],
}

impl Mix {
    /// All operations.
    pub(in crate::engine::tests) const ALL: Mix = Mix {
        names: 3,
        hashed: true,
        settings: 3,
        compacts: 2,
        rewrites: 2,
        ingests: 4,
        ingest_turns: 26,
        copies: 0,
        turns: 360,
        writers_count: 3,
        keys_count: 40,
        value_bytes: 300,
        large_one_in: 0,
        large_bytes: 0,
        synced_tenths: 1,
        items_max: 5,
        deletes: 2,
        ranges: 1,
        given: &[],
    };

    /// Only writes and turns of background work.
    pub(in crate::engine::tests) const WRITES: Mix = Mix {
        names: 0,
        hashed: false,
        settings: 0,
        compacts: 0,
        rewrites: 0,
        ingests: 0,
        ingest_turns: 0,
        copies: 0,
        turns: 400,
        keys_count: 30,
        value_bytes: 700,
        ranges: 0,
        ..Mix::ALL
    };

    /// All operations, with the rare ones more frequent.
    pub(in crate::engine::tests) const EVERYTHING: Mix = Mix {
        names: 12,
        settings: 12,
        compacts: 6,
        rewrites: 6,
        ingests: 10,
        ingest_turns: 60,
        copies: 3,
        ..Mix::ALL
    };

    /// Commits over several keyspaces, beside every kind of catalog change.
    pub(in crate::engine::tests) const ORDER: Mix = Mix {
        names: 40,
        settings: 20,
        ingests: 12,
        ingest_turns: 120,
        copies: 25,
        turns: 200,
        value_bytes: 900,
        ..Mix::WRITES
    };
}
