"""The reference server: ECB euro reference rates behind four gates."""
