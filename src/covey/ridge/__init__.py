"""Ridge heads: sums over clients' records, the heads solved from them, and masks over sums."""
