//! Of what a random workload is made. Plain data.

/// How often what happens, and of which size it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::tests) struct Mix {
    /// Of a thousand steps, those that make or drop a keyspace.
    pub(in crate::engine::tests) names: u64,
    /// One of them may be hashed.
    pub(in crate::engine::tests) hashed: bool,
    /// That change settings.
    pub(in crate::engine::tests) settings: u64,
    /// That want all merged into one run.
    pub(in crate::engine::tests) compacts: u64,
    /// That write the manifest anew.
    pub(in crate::engine::tests) rewrites: u64,
    /// That begin an ingest.
    pub(in crate::engine::tests) ingests: u64,
    /// That are turns of an ingest.
    pub(in crate::engine::tests) ingest_turns: u64,
    /// That begin a checkpoint.
    pub(in crate::engine::tests) copies: u64,
    /// That are turns of background work. All others drive a writer.
    pub(in crate::engine::tests) turns: u64,
    pub(in crate::engine::tests) writers_count: usize,
    pub(in crate::engine::tests) keys_count: u64,
    pub(in crate::engine::tests) value_bytes: usize,
    /// A value of so many is a large one; 0: none is.
    pub(in crate::engine::tests) large_one_in: u64,
    pub(in crate::engine::tests) large_bytes: usize,
    /// Of ten writes, those that are to be durable.
    pub(in crate::engine::tests) synced_tenths: u64,
    /// Items of the larger batches, at most; at least 2.
    pub(in crate::engine::tests) items_max: u64,
    /// Of six items behind the first of a batch, deletes of a key.
    pub(in crate::engine::tests) deletes: u64,
    /// And deletes of ranges.
    pub(in crate::engine::tests) ranges: u64,
    /// Settings of the keyspaces that are made; none: some at random.
    pub(in crate::engine::tests) given: &'static [(&'static str, u64)],
}

impl Mix {
    /// Everything there is.
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

    /// Writes and turns of background work, and nothing else.
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

    /// Everything there is, more often.
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

    /// Commits over several keyspaces, and every change of the catalog beside them.
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
